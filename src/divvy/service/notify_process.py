"""The notify process: one thread for each receiver; the scheduler and the API do not know of it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Final

import structlog

from divvy.bootstrap.notify import open_for_notices
from divvy.control.view import AccountSight, View
from divvy.errors import DivvyError
from divvy.service.child import LIFELINE, Orders, Parent, run_child
from divvy.service.notify.courier import Courier
from divvy.service.notify.deliver import deliver
from divvy.service.notify.receivers import Receiver, read_receivers
from divvy.service.notify.source import NoticeReader
from divvy.units import SECOND

_POLL_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 5.0

_log = structlog.get_logger("notify")


def run(orders: Orders, parent: Parent) -> None:
    """Tell receivers what happens until the parent is gone or a signal asks for the end."""
    parent.tell(ready=True)  # whatever is wrong here must not end the scheduler
    store = open_for_notices(orders.settings)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    home = Path(orders.settings.home)
    for receiver in read_receivers(Path(orders.settings.notify)):
        threading.Thread(target=_serve, args=(receiver, home, store), daemon=True).start()
    while os.read(LIFELINE, 64):
        pass


def _serve(receiver: Receiver, home: Path, store: NoticeReader) -> None:
    place = home / "notify" / f"{receiver.name}.json"
    courier: Courier | None = None
    while True:
        try:
            if courier is None:
                courier = Courier(
                    receiver,
                    place,
                    store.happened,
                    store.newest_happened,
                    lambda: _budgets(store),
                    deliver,
                )
            more = courier.work(time.monotonic_ns() // 1_000_000)
        except DivvyError as error:  # the store cannot be read now
            _log.warning("waiting", receiver=receiver.name, why=str(error))
            time.sleep(_RETRY_SECONDS)
            continue
        if not more:
            time.sleep(_POLL_SECONDS)


def _budgets(store: NoticeReader) -> tuple[int, list[AccountSight]] | None:
    row = store.published()
    if row is None:
        return None
    view = View.from_document(json.loads(row.text))
    return view.at // SECOND * SECOND, list(view.accounts)


if __name__ == "__main__":
    run_child("notify", run)
