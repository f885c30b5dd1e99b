"""How `divvy up` and its child processes speak: settings in by standard input, news out by standard output.

Standard input stays open for as long as the parent lives; a child that reads its end stops. What a child
prints by accident goes to its log, not to the parent.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from divvy.adapters.logs import log_to
from divvy.bootstrap import LiveSettings
from divvy.errors import EXIT_FAILED, DivvyError

LIFELINE: Final = 0


@dataclass(frozen=True, slots=True)
class Orders:
    """What a child is started with.

    Attributes:
        settings: Of the whole control plane.
        sockets: Numbers of listening sockets that the child inherits.
    """

    settings: LiveSettings
    sockets: tuple[int, ...] = ()

    def to_line(self) -> bytes:
        """Return the orders as the line that a child reads first."""
        document = {"settings": asdict(self.settings), "sockets": list(self.sockets)}
        return json.dumps(document).encode() + b"\n"


class Parent:
    """The way to the parent."""

    def __init__(self) -> None:
        self._channel = os.dup(1)
        os.set_inheritable(self._channel, False)
        os.dup2(2, 1)

    def tell(self, **news: Any) -> None:
        """Send one piece of news; a parent that is gone does not hear it."""
        try:
            os.write(self._channel, json.dumps(news).encode() + b"\n")
        except BrokenPipeError:
            return


def read_orders() -> Orders:
    """Return what the parent sent, leaving the rest of standard input unread."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(LIFELINE, 1)
        if not byte:
            sys.exit(EXIT_FAILED)  # the parent was gone before it had spoken
        line += byte
    document = json.loads(line)
    return Orders(LiveSettings(**document["settings"]), tuple(document["sockets"]))


def run_child(name: str, work: Callable[[Orders, Parent], None]) -> None:
    """Run the body of a child process; a refusal is told to the parent and gives the exit code."""
    os.umask(0o077)
    parent = Parent()
    orders = read_orders()
    log_to(Path(orders.settings.home) / "logs" / f"{name}.log")
    try:
        work(orders, parent)
    except DivvyError as error:
        parent.tell(problem=error.to_problem())
        sys.exit(error.exit_code)
