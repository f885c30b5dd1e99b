"""Who pays in a replay: the budget, and which of its accounts claims which account of the trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from divvy.errors import InputError
from divvy.fleet.account import AccountSpec, build_tree
from divvy.fleet.budget import Budget, Policy
from divvy.fleet.claims import UNFUNDED, claimant, share_out
from divvy.sim.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Claims:
    """Who pays for whom.

    Attributes:
        paid_by: Leaf account of the budget per account of the trace.
        unclaimed: Accounts of the trace that no account of the budget claims, with their jobs.
    """

    paid_by: Mapping[str, str]
    unclaimed: Mapping[str, int]


def equal_shares(trace: Trace, policy: Policy | None = None) -> tuple[Budget, Claims]:
    """Return a budget in which every account of the trace has the same share."""
    names = list(trace.gpu_time())
    return _flat(names, [Decimal(1)] * len(names), policy or Policy())


def shares_by_demand(trace: Trace, policy: Policy | None = None) -> tuple[Budget, Claims]:
    """Return a budget in which every account of the trace has a share in proportion to its GPU time."""
    demand = trace.gpu_time()
    return _flat(list(demand), [Decimal(time) for time in demand.values()], policy or Policy())


def claim(trace: Trace, budget: Budget) -> tuple[Budget, Claims]:
    """Return a budget and its claims on the accounts of a trace.

    An account claims the names that its lists of engine names match (``slurm = ["vis-*"]``), then its own
    path, then its last part where that is unique. What nobody claims goes to an unfunded account of share
    0, which is added.

    Raises:
        InputError: If two accounts claim the same name, or the unfunded account cannot be added.
    """
    tree = budget.tree
    jobs: dict[str, int] = {}
    for job in trace.jobs:
        jobs[job.account] = jobs.get(job.account, 0) + 1
        for name in job.or_accounts:
            jobs.setdefault(name, 0)
    paid_by: dict[str, str] = {}
    unclaimed: dict[str, int] = {}
    for name, count in jobs.items():
        path = claimant(name, tree)
        if path is None:
            unclaimed[name] = count
        paid_by[name] = path or UNFUNDED
    if unclaimed:
        if UNFUNDED in tree.row:
            raise InputError.one(
                "account-unfunded",
                f"the budget declares an account {UNFUNDED!r}, which is where unclaimed names go: "
                f"{', '.join(list(unclaimed)[:20])}",
                path=f"accounts.{UNFUNDED}",
                fix="rename it, or claim these names",
            )
        budget = Budget(budget.policy, build_tree([*tree.specs, AccountSpec(UNFUNDED, Decimal(0))]))
    return budget, Claims(paid_by, unclaimed)


def on_clock(budget: Budget, begin: int) -> Budget:
    """Return a budget whose dates are on a replay's clock, which begins at a time (ms) of the trace's own."""
    if not any(spec.later for spec in budget.tree.specs):
        return budget
    specs = (
        replace(spec, later=tuple((at - begin, share) for at, share in spec.later)).from_(0)
        for spec in budget.tree.specs
    )
    return Budget(budget.policy, build_tree(specs))


def _flat(names: Iterable[str], weights: list[Decimal], policy: Policy) -> tuple[Budget, Claims]:
    """Return a one-level budget with shares in proportion to weights, rounded down."""
    tree, paid_by = share_out(dict(zip(names, weights, strict=True)))
    return Budget(policy, tree), Claims(paid_by, {})
