"""Refunds: a run that its node has ended is not paid for, within one minimum runtime.

Only node health makes a refund: a run that failed or was lost, and a fault that was reported for one of its
nodes within the hour before or after. A node that merely drains confirms nothing, and a job that crashes on a
healthy node has only itself to blame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from divvy.control import charging
from divvy.fleet.health import LostRun
from divvy.fleet.job import StopCause
from divvy.fleet.ledger import LedgerEntry
from divvy.fleet.snapshot import Snapshot
from divvy.units import HOUR

#: How far apart the end of a run and the report of the fault may lie.
CONFIRMS: Final = HOUR
REFUND: Final = "refund-node-failure"
_ENDED_BY_NODE: Final = (StopCause.NODE_LOST, StopCause.FAILED)

OnLedger = Callable[[LedgerEntry], None]


def ended(snapshot: Snapshot, row: int, cause: StopCause, at: int, on_ledger: OnLedger) -> None:
    """Refund a charged run that ends now if a fault of its node is known, else remember it for a while.

    Call it while the run's placement and rate are still there.
    """
    jobs = snapshot.jobs
    spec, nodes = jobs.spec[row], tuple(node for node, _ in jobs.placement[row])
    if cause not in _ENDED_BY_NODE or not spec.allocated:
        return
    charge = jobs.rate[row] * min(at - jobs.started[row], spec.min_runtime)
    path = snapshot.tree.paths[jobs.account[row]]
    lost = LostRun(at, path, spec.author, spec.id, jobs.attempt[row], nodes, charge)
    if any(node in snapshot.nodes.fault for node in nodes):
        _refund(snapshot, lost, at, on_ledger)
        return
    snapshot.lost[:] = [run for run in snapshot.lost if run.at >= at - CONFIRMS]
    snapshot.lost.append(lost)


def confirmed(snapshot: Snapshot, node: int, at: int, on_ledger: OnLedger) -> None:
    """Refund the runs that a node which is found at fault has ended within the last hour."""
    found = [run for run in snapshot.lost if node in run.nodes and run.at >= at - CONFIRMS]
    for run in found:
        snapshot.lost.remove(run)
        _refund(snapshot, run, at, on_ledger)


def _refund(snapshot: Snapshot, run: LostRun, at: int, on_ledger: OnLedger) -> None:
    row = snapshot.tree.row.get(run.account)
    if not run.charge or row is None or snapshot.tree.children[row]:
        return  # nothing was charged, or its account is gone
    entry = LedgerEntry(
        run.account, run.job, run.attempt, at, at, 0, 0, -run.charge, allocated=True, cause=REFUND
    )
    charging.adjust(snapshot, entry, on_ledger)
    author = snapshot.author_usage.get((row, run.author))
    if author is not None:
        author.add(at, 0, -run.charge)
