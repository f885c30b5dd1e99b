"""Why: the codes that plans carry. Text is rendered from them only when somebody asks."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Reason(IntEnum):
    """A reason of a decision or of a wait. The number is the severity: the highest is the headline."""

    STARTED_FREE = 1
    STARTED_OVER_UNALLOCATED = 2
    STARTED_BY_RECLAIM = 3
    STARTED_BY_SWAP = 4
    STARTED_UNALLOCATED = 5
    STARTED_BACKFILL = 6
    STARTED_BY_SLOT = 7

    WAIT_BEHIND = 20
    """Other jobs of the same account go first."""
    WAIT_PATIENCE = 19
    """It may take devices back soon; most come free by themselves before that."""
    WAIT_CAPACITY = 22
    """Too few devices are free or may be taken back now."""
    WAIT_SHAPE = 23
    """Enough devices in all, but not in the shape the gang needs (whole nodes, one node)."""
    WAIT_PROTECTED = 24
    """What could be taken back is inside its minimum runtime."""
    WAIT_OVERSERVED = 25
    """The account has had its share; it takes nothing back and waits for what comes free."""
    WAIT_SLOT = 26
    """There is room, but a gang's dated slot or maintenance is due there before its protection would end."""
    WAIT_LIMIT = 27
    """A limit of the account or author is reached."""
    WAIT_MODEL = 28
    """No healthy node has the device model asked for."""
    WAIT_TOO_LARGE = 29
    """The gang is larger than the healthy fleet."""
    WAIT_VICTIMS = 30
    """Devices are promised; the jobs that hold them are being stopped."""

    WAIT_REST = 31
    """Unallocated work that gave way several times rests before it is tried again."""
    WAIT_FLOORS = 32
    """What other accounts hold within their floors leaves too little, for as long as they have work."""

    PREEMPTED_UNALLOCATED = 40
    PREEMPTED_RECLAIM = 41
    PREEMPTED_SWAP = 42
    PREEMPTED_DRAIN = 43
    PREEMPTED_SLOT = 44


#: What each reason says, for people. Values in braces are filled from the explanation's numbers.
TEXT: Final[dict[Reason, str]] = {
    Reason.STARTED_FREE: "started on free devices",
    Reason.STARTED_OVER_UNALLOCATED: "started in place of unallocated work",
    Reason.STARTED_BY_RECLAIM: "started on devices taken back from a more over-served account",
    Reason.STARTED_BY_SWAP: "started in place of a job of the same account that ranks behind it",
    Reason.STARTED_UNALLOCATED: "started unallocated on devices that nobody claims now",
    Reason.STARTED_BACKFILL: "started early without delaying a job ahead of it",
    Reason.STARTED_BY_SLOT: "started on the devices of its dated slot",
    Reason.WAIT_PATIENCE: "devices mostly come free by themselves soon; it may take some back after a moment",
    Reason.WAIT_BEHIND: "other jobs of the same account go first",
    Reason.WAIT_CAPACITY: "too few devices are free or may be taken back now",
    Reason.WAIT_SHAPE: "enough devices in all, but not in the shape the gang needs",
    Reason.WAIT_PROTECTED: "what could be taken back is still inside its minimum runtime",
    Reason.WAIT_OVERSERVED: "its account has had its share, so it waits for what comes free",
    Reason.WAIT_SLOT: "what is free is kept for a gang or for maintenance before its protection would end",
    Reason.WAIT_LIMIT: "a limit of the account or author is reached",
    Reason.WAIT_MODEL: "no healthy node has the device model asked for",
    Reason.WAIT_TOO_LARGE: "the gang is larger than the healthy fleet",
    Reason.WAIT_VICTIMS: "devices are promised; the jobs on them are being stopped",
    Reason.WAIT_REST: "it gave way several times and rests for a while before it is tried again",
    Reason.WAIT_FLOORS: "what others hold within their floors leaves too few devices while they have work",
    Reason.PREEMPTED_UNALLOCATED: "unallocated work gives way to allocated work",
    Reason.PREEMPTED_RECLAIM: "its account was more over-served than the account that took the devices",
    Reason.PREEMPTED_SWAP: "a job of the same account that ranks ahead took the devices",
    Reason.PREEMPTED_DRAIN: "its node is being drained",
    Reason.PREEMPTED_SLOT: "a dated slot of a gang on its devices came due",
}
