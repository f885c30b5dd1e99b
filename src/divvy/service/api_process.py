"""The API process: answers over the sockets that `divvy up` has opened; holds nothing that could be lost."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path

from divvy.bootstrap import open_for_api
from divvy.bootstrap.by_hand import by_hand
from divvy.bootstrap.interconnect import interconnect_of
from divvy.service.app import create_app
from divvy.service.child import LIFELINE, Orders, Parent, run_child
from divvy.service.foresight import Foresight
from divvy.service.ports import Backend
from divvy.service.server import serve
from divvy.service.whatif import WhatIf


def run(orders: Orders, parent: Parent) -> None:
    """Answer requests until the parent is gone or a signal asks for the end."""
    store = open_for_api(orders.settings)
    backend = Backend(
        reader=store.reader,
        intake=store.intake,
        tokens=store.tokens,
        now=store.now,
        home=Path(orders.settings.home),
        daemon_uid=os.geteuid(),
        health=store.health,
        foresee=Foresight(orders.settings),
        whatif=WhatIf(orders.settings),
        interconnect=interconnect_of(orders.settings.topology),
        by_hand=by_hand(orders.settings),
    )
    threading.Thread(target=_end_with_parent, name="lifeline", daemon=True).start()
    listeners = [socket.socket(fileno=number) for number in orders.sockets]
    try:
        serve(create_app(backend), listeners, lambda: parent.tell(ready=True))
    finally:
        store.close()


def _end_with_parent() -> None:
    while os.read(LIFELINE, 64):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    run_child("api", run)
