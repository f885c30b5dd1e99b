"""What readers know of the state: one small document per pass, written by the loop, read by everybody else.

The API and the dashboard live in other processes than the planner and never see its columns. They get
this view (nodes, standings, waits) and the read model of the jobs; explanations are rendered from the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Any, Final, NamedTuple

from divvy.fleet.account import ROOT
from divvy.fleet.decision import Plan
from divvy.fleet.health import Window
from divvy.fleet.job import Phase
from divvy.fleet.node import Node, NodeState
from divvy.fleet.reason import Reason
from divvy.fleet.snapshot import Snapshot
from divvy.planners.jobs.balance import balances_at
from divvy.planners.jobs.feasible import shares_of
from divvy.units import HOUR

#: What an account without a share counts as, so that it comes last and the number stays finite.
_NO_SHARE: Final = 1e9


class AccountSight(NamedTuple):
    """An account as the last pass saw it.

    Attributes:
        path: Account; inner ones too, with the sums of their children.
        rank: Place in the order of service, 0 first; -1 where it has no demand.
        balance: Usage over entitlement; -1 where nothing is owed (share 0).
        floor: Devices below which nobody pushes it while it has demand; -1 where the pass did not say.
        held: Allocated devices.
        unallocated: Unallocated devices.
        waiting: Queued allocated jobs.
        waiting_gpus: Their devices.
        entitlement: What the window owes it, charge.
        usage: What the window counts against it, charge.
        spare: Unallocated usage in the window over its share, charge; less goes first among unallocated jobs.
    """

    path: str
    rank: int
    balance: float
    floor: float
    held: int
    unallocated: int
    waiting: int
    waiting_gpus: int
    entitlement: float
    usage: float
    spare: float


class WaitSight(NamedTuple):
    """Why a job that was tried waits; `owed_by` is the account that was at the head of the queue."""

    reason: Reason
    needed: int
    free: int
    reclaimable: int
    protected: int
    owed_by: str


class NodeSight(NamedTuple):
    """A node, what is free on it, and the maintenance that is announced for it."""

    node: Node
    free: int
    window: Window | None = None


class SlotSight(NamedTuple):
    """A dated slot of a gang that waits: when it is due (ms), and on which devices."""

    due: int
    placement: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class View:
    """The published state.

    Attributes:
        version: Version of the state.
        at: Time of the pass, ms.
        planner: Name of the planner.
        nodes: Nodes in the order in which they came.
        accounts: Accounts in tree order.
        waits: Per tried job.
        slots: Per gang that has one, its dated slot.
        authors: Per account and author with queued jobs: charge in the window (order inside an account).
    """

    version: int
    at: int
    planner: str
    nodes: tuple[NodeSight, ...] = ()
    accounts: tuple[AccountSight, ...] = ()
    waits: Mapping[str, WaitSight] = field(default_factory=dict)
    authors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    slots: Mapping[str, SlotSight] = field(default_factory=dict)

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """Return the place of every account that the pass ranked."""
        return {account.path: account.rank for account in self.accounts if account.rank >= 0}

    @cached_property
    def spare_order(self) -> Mapping[str, tuple[float | int, ...]]:
        """Return, per account, its place in the order in which unallocated jobs are served."""
        order: dict[str, tuple[float | int, ...]] = {}
        for number, account in enumerate(self.accounts):  # parents come before their children
            above = order.get(account.path.rpartition(".")[0], ())
            order[account.path] = (*above, account.spare, number)
        return order

    @cached_property
    def standing(self) -> Mapping[str, AccountSight]:
        """Return the accounts by path."""
        return {account.path: account for account in self.accounts}

    @cached_property
    def mean_weight(self) -> float:
        """Return the weight of an average device: charge over this and 3,600,000 is GPU-hours."""
        gpus = sum(sight.node.gpus for sight in self.nodes)
        return sum(sight.node.gpus * sight.node.weight for sight in self.nodes) / gpus if gpus else 1.0

    def to_document(self) -> dict[str, Any]:
        """Return the view as plain JSON values."""
        return {
            "version": self.version,
            "at": self.at,
            "planner": self.planner,
            "nodes": [
                [n.name, n.gpus, n.model, n.weight, n.domain, int(n.state), n.cause, free, window, n.cluster]
                for n, free, window in self.nodes
            ],
            "accounts": [list(account) for account in self.accounts],
            "waits": {job: [int(wait.reason), *wait[1:]] for job, wait in self.waits.items()},
            "authors": {path: dict(usage) for path, usage in self.authors.items()},
            "slots": {job: [slot.due, slot.placement] for job, slot in self.slots.items()},
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> View:
        """Return the view that `to_document` wrote.

        Raises:
            ValueError: If the document is damaged.
        """
        try:
            return cls(
                int(document["version"]),
                int(document["at"]),
                str(document["planner"]),
                tuple(
                    NodeSight(
                        Node(name, gpus, model, weight, domain, NodeState(state), cause, *more),
                        free,
                        Window(*window) if window else None,
                    )
                    for name, gpus, model, weight, domain, state, cause, free, window, *more in document[
                        "nodes"
                    ]
                ),
                tuple(AccountSight(*row) for row in document["accounts"]),
                {job: WaitSight(Reason(row[0]), *row[1:]) for job, row in document["waits"].items()},
                document["authors"],
                {
                    job: SlotSight(int(due), tuple((str(node), int(gpus)) for node, gpus in placement))
                    for job, (due, placement) in document["slots"].items()
                },
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"damaged view: {error}") from error


def describe(snapshot: Snapshot, plan: Plan, now: int, planner: str) -> View:
    """Return the view of a state and of the plan that was made on it."""
    tree, jobs, nodes = snapshot.tree, snapshot.jobs, snapshot.nodes
    return View(
        snapshot.version,
        now,
        planner,
        tuple(
            NodeSight(node, max(free, 0), nodes.window.get(row))
            for row, (node, free) in enumerate(zip(nodes.node, nodes.free, strict=True))
        ),
        _accounts(snapshot, plan, now),
        {
            jobs.spec[row].id: WaitSight(*wait[:5], tree.paths[max(wait.owed_by, ROOT)])
            for row, wait in plan.waits
            if jobs.phase[row] is Phase.QUEUED
        },
        _authors(snapshot, now),
        {
            jobs.spec[row].id: SlotSight(
                slot.due, tuple((nodes.node[node].name, gpus) for node, gpus in slot.placement)
            )
            for row, slot in jobs.slot.items()
        },
    )


def _accounts(snapshot: Snapshot, plan: Plan, now: int) -> tuple[AccountSight, ...]:
    tree, policy = snapshot.tree, snapshot.policy
    standings = {standing.account: standing for standing in plan.standings}
    shares = shares_of(snapshot)
    balances = balances_at(snapshot, now, snapshot.capacity.rate, shares)
    spare = [history.windowed(now, policy.lookback, policy.taper) for history in snapshot.unallocated]
    sums = [[0, 0, 0, 0] for _ in tree.paths]
    for row, seen in standings.items():
        if not tree.children[row]:
            sums[row] = [seen.held, seen.unallocated, seen.waiting, seen.waiting_gpus]
    for row in range(len(tree) - 1, ROOT, -1):
        above = tree.parent[row]
        spare[above] += spare[row]
        sums[above] = [a + b for a, b in zip(sums[above], sums[row], strict=True)]
    accounts: list[AccountSight] = []
    for row in range(ROOT + 1, len(tree)):
        standing = standings.get(row)
        held, unallocated, waiting, waiting_gpus = sums[row]
        accounts.append(
            AccountSight(
                tree.paths[row],
                standing.rank if standing is not None else -1,
                _finite(standing.balance if standing is not None else balances.of[row]),
                _finite(standing.floor if standing is not None else -1.0),
                held,
                unallocated,
                waiting,
                waiting_gpus,
                balances.entitlement[row],
                balances.usage(row),
                spare[row] / shares[row] if shares[row] > 0 else spare[row] * _NO_SHARE,
            )
        )
    return tuple(accounts)


def _finite(value: float) -> float:
    """Return a number as JSON can hold it; an account that is owed nothing has no balance."""
    return value if isfinite(value) else -1.0


def _authors(snapshot: Snapshot, now: int) -> dict[str, dict[str, float]]:
    jobs, policy, tree = snapshot.jobs, snapshot.policy, snapshot.tree
    queued = {
        (jobs.account[row], jobs.spec[row].author) for row in jobs.live if jobs.phase[row] is Phase.QUEUED
    }
    usage: dict[str, dict[str, float]] = {}
    hour = now - now % HOUR
    for key in sorted(queued):
        history = snapshot.author_usage.get(key)
        if history is not None:
            # As the planner counts it: the window at the last full hour, and an hour for what runs.
            had = history.windowed(hour, policy.lookback, policy.taper) + history.rate * HOUR
            usage.setdefault(tree.paths[key[0]], {})[key[1]] = had
    return usage
