"""The ledger: every charge with its cause. Nothing else makes or changes a charge."""

from __future__ import annotations

from typing import Final, NamedTuple

#: The cause of a line about a run; every other line is an adjustment.
OCCUPANCY: Final = "occupancy"
#: The cause of what slices worked for an account behind a router.
SLICES: Final = "slices"


class LedgerEntry(NamedTuple):
    """One line of the ledger; the charge of an account is the sum of its lines.

    Attributes:
        account: Path.
        job: Job id; also of an adjustment that a run has caused (a price, a refund); else empty.
        attempt: Run of the job.
        start: Begin of the occupancy, ms.
        end: End of the occupancy, ms; never inclusive.
        gpus: Devices held.
        weight: Charge per ms of the whole gang (devices x model weight, summed over nodes).
        charge: ``(end - start) * weight`` for occupancy; the amount of an adjustment.
        allocated: Whether it is charged to the budget (unallocated time is listed, not charged).
        cause: ``occupancy`` or the cause of the adjustment.
    """

    account: str
    job: str
    attempt: int
    start: int
    end: int
    gpus: int
    weight: int
    charge: int
    allocated: bool
    cause: str
