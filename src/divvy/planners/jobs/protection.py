"""The cap on protection: how much of the fleet one account may keep out of everybody's reach."""

from __future__ import annotations

from divvy.fleet.budget import Policy
from divvy.planners.jobs.index import JobIndex


class Cap:
    """The cap as one pass applies it.

    With a cap of k, the weight of an account's protected runs stays at or below k x its share of the healthy
    fleet. A run beyond the cap starts all the same, charged and interruptible from its beginning.
    """

    def __init__(self, index: JobIndex, policy: Policy) -> None:
        self._index = index
        self._cap = policy.protection_cap
        self._exposed: dict[int, int] = {}
        """Per account, the weight of the runs that this pass starts without protection."""

    def allows(self, account: int, weight: int) -> bool:
        """Return whether an account may protect one more run of a weight; if not, it runs unprotected."""
        if self._cap <= 0:
            return True
        index = self._index
        exposed = sum(run.weight for run in index.accounts[account].interruptible.values())
        protected = index.held[account] - exposed - self._exposed.get(account, 0)
        if protected + weight <= self._cap * index.shares[account] * index.capacity:
            return True
        self._exposed[account] = self._exposed.get(account, 0) + weight
        return False
