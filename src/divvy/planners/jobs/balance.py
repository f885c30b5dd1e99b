"""What each account has had against what it is entitled to, at every level of the tree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from divvy.fleet.snapshot import Snapshot
from divvy.planners.jobs.window import UsageWindow

#: Balance of an account without entitlement that has used something: behind everybody.
UNFUNDED: Final = float("inf")
_TICKS_PER_WINDOW: Final = 2_016


def tick_of(now: int, lookback: int) -> int:
    """Return the last full tick: balances stand still in between, 5 minutes for a window of 7 days."""
    return now - now % tick_length(lookback)


def tick_length(lookback: int) -> int:
    """Return how long balances stand still, ms."""
    return max(lookback // _TICKS_PER_WINDOW, 1)


class Balances:
    """Balances of one pass.

    Usage is the exact tapered charge in the lookback; entitlement is the larger of the same integral of
    share x healthy capacity and of share x 24 h (or the lookback, if shorter) of present capacity, so that
    a new fleet, a new account or a halved one behaves sanely on day one. The balance of a row is usage
    over entitlement: 1 is exactly served, less is owed.

    Usage is read at the last full tick, and every run that began since counts with its whole minimum
    runtime (its entry charge). So the first account cannot take everything between two ticks, and the
    numbers stand still for a moment: what could not start a second ago cannot start now unless something
    else changed.

    With a horizon of forgiveness, what a leaf had beyond its share before the horizon does not count; what it
    is owed from that time still does.

    Attributes:
        usage: Charge per tree row, GPU-ms x weight.
        entitlement: The same unit.
    """

    __slots__ = ("entitlement", "usage")

    def __init__(
        self,
        snapshot: Snapshot,
        now: int,
        capacity: int,
        shares: list[float],
        entered: Iterable[tuple[int, int]] = (),
    ) -> None:
        policy, tree = snapshot.policy, snapshot.tree
        lookback, window = policy.lookback, UsageWindow(policy)
        older = window.before_horizon(snapshot.capacity, now) if window.horizon else 0.0
        usage = [0.0] * len(tree)
        lineage, histories = tree.lineage, snapshot.usage
        for leaf in tree.leaves:
            used = window.of(histories[leaf], now)
            if window.horizon and used:
                used -= max(window.before_horizon(histories[leaf], now) - shares[leaf] * older, 0.0)
            if used:
                for row in lineage[leaf]:
                    usage[row] += used
        for leaf, charge in entered:
            for row in lineage[leaf]:
                usage[row] += charge
        self.usage = usage
        day = window.first_day() * capacity
        if len(snapshot.epochs) == 1 or snapshot.epochs[-1].since <= now - lookback:
            base = max(window.of(snapshot.capacity, now), day)
            self.entitlement = [share * base for share in shares]
        else:
            self.entitlement = [
                max(past * share / nominal if nominal else past, share * day)
                for past, share, nominal in zip(
                    _past_shares(snapshot, now), shares, map(float, tree.share), strict=True
                )
            ]

    def copy(self) -> Balances:
        """Return balances whose usage can be added to."""
        other = object.__new__(Balances)
        other.usage, other.entitlement = self.usage.copy(), self.entitlement
        return other

    def of(self, row: int) -> float:
        """Return the balance of a row."""
        entitlement = self.entitlement[row]
        if entitlement > 0:
            return self.usage[row] / entitlement
        return UNFUNDED if self.usage[row] > 0 else 1.0

    def with_entry(self, row: int, charge: float) -> float:
        """Return the balance of a row if a charge entered, capped at what the row is still owed."""
        entitlement, usage = self.entitlement[row], self.usage[row]
        if entitlement <= 0:
            return UNFUNDED
        return (usage + min(charge, max(entitlement - usage, 0.0))) / entitlement


def _past_shares(snapshot: Snapshot, now: int) -> list[float]:
    """Return share x capacity over the window per row, where shares changed inside the window."""
    policy, tree = snapshot.policy, snapshot.tree
    window = UsageWindow(policy)
    owed = [0.0] * len(tree)
    epochs = snapshot.epochs
    for number, epoch in enumerate(epochs):
        since = epoch.since if number else now - policy.lookback
        until = epochs[number + 1].since if number + 1 < len(epochs) else now
        part = window.part(snapshot.capacity, now, since, until)
        for path, share in zip(epoch.tree.paths, epoch.tree.share, strict=True):
            row = tree.row.get(path)
            if row is not None:
                owed[row] += float(share) * part
    return owed
