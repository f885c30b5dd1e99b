"""What accounts can be owed where a fleet has several device models: nobody more of one than there is.

An account whose jobs ask for one model only cannot be served with another. Its share of the fleet is cut to
what the models it asks for can give beside everybody else who needs them: the weighted max-min fair flow
from accounts (supply: share x capacity) to models (capacity). While some set of models is asked for by
accounts with more share than it holds, the tightest such set is divided among them in proportion, and taken
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from divvy.fleet.account import ROOT, AccountTree
from divvy.fleet.job import Phase
from divvy.fleet.snapshot import Snapshot
from divvy.planners.jobs.index import JobIndex

#: Sets of models that are looked at; more than fleets ever ask for.
_MOST_SETS = 4_096


def feasible(
    supply: Mapping[int, float],
    wants: Mapping[int, frozenset[str]],
    capacity: Mapping[str, int],
    most: Mapping[int, float] | None = None,
) -> dict[int, float]:
    """Return what of its supply each account can get.

    Args:
        supply: Weight that an account is owed by its share.
        wants: Models that it can use, for every account with a supply.
        capacity: Weight of every model.
        most: What it asks for at all, where that may be less than its supply; what it leaves goes to others.
    """
    most = supply if most is None else {account: min(most[account], supply[account]) for account in supply}
    left = dict(capacity)
    open_ = {account: wants[account].intersection(left) for account in supply}
    given: dict[int, float] = {account: 0.0 for account, models in open_.items() if not models}
    open_ = {account: models for account, models in open_.items() if models}
    while open_:
        ratio, tight = min(
            (_ratio(models, open_, supply, most, left), sorted(models)) for models in _unions(open_.values())
        )
        if ratio >= 1:
            return given | {account: most[account] for account in open_}
        inside = [account for account, models in open_.items() if models.issubset(tight)]
        given |= {account: min(supply[account] * ratio, most[account]) for account in inside}
        for model in tight:
            del left[model]
        open_ = {
            account: models.difference(tight) for account, models in open_.items() if account not in given
        }
    return given


def _ratio(
    models: frozenset[str],
    wants: Mapping[int, frozenset[str]],
    supply: Mapping[int, float],
    most: Mapping[int, float],
    capacity: Mapping[str, int],
) -> float:
    """Return which part of their supply a set of models can give the accounts that can use nothing else."""
    left = float(sum(capacity[model] for model in models))
    inside = [account for account, wanted in wants.items() if wanted <= models and supply[account] > 0]
    owed = sum(supply[account] for account in inside)
    if most is not supply:
        for account in sorted(inside, key=lambda each: most[each] / supply[each]):
            if left * supply[account] < most[account] * owed:
                break
            left -= most[account]
            owed -= supply[account]
    return left / owed if owed > 0 else float("inf")


def _unions(sets: Iterable[frozenset[str]]) -> set[frozenset[str]]:
    """Return all unions of sets; only these can be tightest."""
    unions: set[frozenset[str]] = set()
    for each in dict.fromkeys(sets):
        unions |= {each, *(each | union for union in unions)}
        if len(unions) > _MOST_SETS:
            break
    return unions


def feasible_shares(
    tree: AccountTree,
    nominal: Sequence[float],
    wants: Mapping[int, frozenset[str]],
    capacity: Mapping[str, int],
) -> list[float] | None:
    """Return the part of the fleet that each tree row can be owed; None where all can have their share.

    Args:
        tree: The accounts.
        nominal: Their shares.
        wants: Per leaf with jobs, the models that it asks for; an empty name is any.
        capacity: Weight of the healthy devices of every model.
    """
    total, every = sum(capacity.values()), frozenset(capacity)
    asked = {leaf: every if "" in models else models for leaf, models in wants.items() if models}
    if len(every) < 2 or total <= 0 or all(models >= every for models in asked.values()):
        return None
    supply = {leaf: nominal[leaf] * total for leaf in asked}
    got = feasible(supply, asked, capacity)
    shares = list(nominal)
    for leaf, weight in got.items():
        if weight < supply[leaf]:
            for row in tree.lineage[leaf]:
                shares[row] -= nominal[leaf] - weight / total
    return [max(share, 0.0) for share in shares] if shares != list(nominal) else None


def settle(index: JobIndex, snapshot: Snapshot) -> None:
    """Put the shares that are feasible now into force in an index."""
    capacity = index.weight_by_model
    shares = None
    if len(capacity) > 1:
        wants = {row: account.models() for row, account in index.accounts.items()}
        shares = feasible_shares(snapshot.tree, index.nominal, wants, capacity)
    index.share(snapshot, shares if shares is not None else index.nominal)


def shares_of(snapshot: Snapshot) -> list[float]:
    """Return the shares that are feasible in a snapshot, as `settle` finds them in an index."""
    tree, jobs = snapshot.tree, snapshot.jobs
    nominal = [float(share) for share in tree.share]
    capacity: dict[str, int] = {}
    for node, there in zip(snapshot.nodes.node, snapshot.nodes.there, strict=True):
        if there:
            capacity[node.model] = capacity.get(node.model, 0) + there * node.weight
    if len(capacity) < 2:
        return nominal
    wants: dict[int, set[str]] = {}
    for row in jobs.live:
        if jobs.spec[row].allocated and jobs.phase[row] in (Phase.QUEUED, Phase.PLACED, Phase.RUNNING):
            wants.setdefault(jobs.account[row], set()).add(jobs.spec[row].model)
    frozen = {leaf: frozenset(models) for leaf, models in wants.items() if leaf != ROOT}
    return feasible_shares(tree, nominal, frozen, capacity) or nominal
