"""Live transfers: bytes moved over several rails, with proof of path and healing.

An `Agent` runs on each host. A `Region` is a buffer with a name in a `Place`; `Agent.send` moves descriptors
of it to a region or file of another agent over all rails that are worth it and returns a `Handle`, whose
`wait` returns the report once both sides have a verdict. See ``docs/reference/move.md``.
"""

from __future__ import annotations

from divvy.transfer.agent import Agent
from divvy.transfer.auth import read_key
from divvy.transfer.interfaces import Rail, discover
from divvy.transfer.machine.cut import Descriptor
from divvy.transfer.outgoing import Wish
from divvy.transfer.peer import Handle, Peer
from divvy.transfer.places import Place, Region

__all__ = [
    "Agent",
    "Descriptor",
    "Handle",
    "Peer",
    "Place",
    "Rail",
    "Region",
    "Wish",
    "discover",
    "read_key",
]
