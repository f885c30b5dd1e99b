"""Where every account stands after a pass: the very numbers the queue is sorted by."""

from __future__ import annotations

from collections.abc import Sequence

from divvy.fleet.account import AccountTree
from divvy.fleet.decision import Standing
from divvy.planners.jobs.balance import Balances
from divvy.planners.jobs.contest import Key
from divvy.planners.jobs.index import JobIndex


def place(index: JobIndex, balances: Balances, floors: Sequence[float], row: int) -> Key:
    """Return the place of a row among its siblings: below the floor first, then by balance."""
    return index.held[row] >= floors[row], balances.of[row], row


def standings(
    tree: AccountTree, index: JobIndex, balances: Balances, floors: Sequence[float]
) -> tuple[Standing, ...]:
    """Return the accounts that hold or want something, in the order in which they are served."""
    rows = [
        account.row
        for account in index.accounts.values()
        if account.queue.count
        or account.spare.count
        or index.held[account.row]
        or index.unallocated[account.row]
    ]
    rows.sort(key=lambda leaf: [place(index, balances, floors, row) for row in tree.lineage[leaf]])
    return tuple(
        Standing(
            row,
            rank,
            balances.of[row],
            floors[row],
            index.held[row],
            index.unallocated[row],
            index.accounts[row].queue.count,
            index.accounts[row].queue.gpus,
        )
        for rank, row in enumerate(rows)
    )
