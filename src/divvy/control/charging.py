"""Charging: what a run costs while it lasts, and its lines in the ledger when it ends.

Occupancy is charged by its rate. The surcharge on long protection is charged whole when the run begins,
like its entry charge in a comparison, and what was not used of it is given back when the run ends; the
ledger has one line for what remains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from divvy.fleet.ledger import OCCUPANCY, LedgerEntry
from divvy.fleet.price import surcharge, used_surcharge
from divvy.fleet.snapshot import Snapshot
from divvy.fleet.usage import ChargeHistory

PRICE: Final = "protection-price"


def begin(snapshot: Snapshot, row: int, at: int) -> None:
    """Begin to charge the run of a job, which starts at an instant."""
    jobs, nodes = snapshot.jobs, snapshot.nodes.node
    weight = sum(gpus * nodes[node].weight for node, gpus in jobs.placement[row])
    jobs.rate[row] = weight
    extra = 0
    if jobs.spec[row].allocated and jobs.protected_until[row]:
        extra = surcharge(snapshot.policy.protection_price, jobs.protected_until[row] - at, weight)
    jobs.surcharge[row] = extra
    _add(snapshot, row, at, weight, extra)


def end(snapshot: Snapshot, row: int, at: int, on_ledger: Callable[[LedgerEntry], None]) -> None:
    """End the charging of a run at an instant not before its start, and write its lines."""
    jobs = snapshot.jobs
    spec, start, weight, extra = jobs.spec[row], jobs.started[row], jobs.rate[row], jobs.surcharge[row]
    jobs.rate[row] = jobs.surcharge[row] = 0
    until = jobs.protected_until[row]
    kept = used_surcharge(extra, until - start, min(at, until) - start) if extra else 0
    _add(snapshot, row, at, -weight, kept - extra)
    path = snapshot.tree.paths[jobs.account[row]]
    gpus = sum(gpus for _, gpus in jobs.placement[row])
    line = LedgerEntry(
        path, spec.id, jobs.attempt[row], start, at, gpus, weight, 0, spec.allocated, OCCUPANCY
    )
    on_ledger(line._replace(charge=(at - start) * weight))
    if kept:
        on_ledger(line._replace(start=at, gpus=0, weight=0, charge=kept, cause=PRICE))


def adjust(snapshot: Snapshot, entry: LedgerEntry, on_ledger: Callable[[LedgerEntry], None]) -> None:
    """Add the charge of an explicit entry to its account, and write it down."""
    snapshot.usage[snapshot.tree.leaf(entry.account)].add(entry.start, 0, entry.charge)
    on_ledger(entry)


def _add(snapshot: Snapshot, row: int, at: int, rate: int, charge: int) -> None:
    account, spec = snapshot.jobs.account[row], snapshot.jobs.spec[row]
    if not spec.allocated:
        snapshot.unallocated[account].add(at, rate)
        return
    snapshot.usage[account].add(at, rate, charge)
    key = (account, spec.author)
    author = snapshot.author_usage.get(key)
    if author is None:
        author = snapshot.author_usage[key] = ChargeHistory()
    author.add(at, rate, charge)
