"""From the rows of one account tree to those of the next."""

from __future__ import annotations

from divvy.errors import ConflictError
from divvy.fleet.account import AccountTree
from divvy.fleet.snapshot import Snapshot


def remap(snapshot: Snapshot, new: AccountTree) -> dict[int, int]:
    """Return new rows per old leaf row.

    Raises:
        ConflictError: If the new tree drops an account with live jobs, or gives it children.
    """
    old, leaves = snapshot.tree, set(new.leaves)
    found = {row: new.row[old.paths[row]] for row in old.leaves if new.row.get(old.paths[row], -1) in leaves}
    jobs = snapshot.jobs
    orphans = sorted({old.paths[jobs.account[row]] for row in jobs.live if jobs.account[row] not in found})
    if orphans:
        raise ConflictError.one(
            "account-in-use",
            f"accounts with live jobs would vanish or get children: {', '.join(orphans)}",
            path="accounts",
            fix="keep them (a share of 0 is allowed) until their jobs have ended",
        )
    return found
