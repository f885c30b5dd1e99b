"""Health of nodes: faults that were reported, and windows of maintenance that are announced."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class NodeFault(NamedTuple):
    """A fault that a node has until it is reported well again.

    Attributes:
        code: What was reported, such as ``xid-79`` or ``ecc``.
        fatal: Whether what runs there must leave at once.
        since: When it was reported first, ms.
        last: When it was reported last, ms.
        cleared: Whether the node is well again; it goes back into service, and the fault is forgotten.
    """

    code: str
    fatal: bool
    since: int
    last: int
    cleared: bool = False

    @property
    def cause(self) -> str:
        """Return why its node is out of service, for people."""
        return f"fault {self.code}{' (fatal)' if self.fatal else ''}"


class Window(NamedTuple):
    """Maintenance of a node that is announced, or under way.

    Attributes:
        start: From when the node takes no work, ms; what starts before ends its protection by then.
        end: When it comes back by itself, ms; 0: when somebody says so.
        since: When it was announced, ms.
        cause: Why, for people.
    """

    start: int
    end: int
    since: int
    cause: str


class LostRun(NamedTuple):
    """A run that failed or was lost, whose charge is refunded if its node turns out to have been at fault.

    Attributes:
        at: When it ended, ms.
        account: Leaf account.
        author: Who submitted it.
        job: Id.
        attempt: Number of the run.
        nodes: Rows of its nodes.
        charge: Most that is refunded: its charge, capped at one minimum runtime.
    """

    at: int
    account: str
    author: str
    job: str
    attempt: int
    nodes: tuple[int, ...]
    charge: int


#: XIDs that mean that the device, or its node, has failed and needs a reset or a repair.
FATAL_XIDS: Final = frozenset(
    {46, 48, 61, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}
)
#: XIDs after which the device goes on, and should be looked at soon: contained ECC errors, remapped rows.
#: Source of both: NVIDIA, "XID Errors" (docs.nvidia.com/deploy/xid-errors), recommended actions.
WORN_XIDS: Final = frozenset({63, 92, 94, 121, 149, 154})
_XID: Final = re.compile(r"xid-([0-9]{1,4})", re.ASCII)


def is_fatal(code: str) -> bool | None:
    """Return whether a fault of a code is fatal; None for an XID that only the application is to blame for.

    What is no known XID is not fatal: the node drains as its protected work ends.
    """
    match = _XID.fullmatch(code)
    if match is None:
        return False
    number = int(match[1])
    if number in FATAL_XIDS:
        return True
    return False if number in WORN_XIDS else None
