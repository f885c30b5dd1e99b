"""Waiting for a job to end, with a spinner where somebody watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from divvy.cli.client import Client
from divvy.cli.render import clean, seconds
from divvy.errors import UnavailableError

PATIENCE_SECONDS: Final = 120.0
_POLL_SECONDS: Final = (0.2, 2.0)
ENDED: Final = ("finished", "failed", "cancelled", "preempted")


def wait_for_end(
    client: Client, job: str, *, spinner: bool, patience: float = PATIENCE_SECONDS
) -> dict[str, Any]:
    """Return a job once it has ended; a control plane that is being restarted is waited for.

    Raises:
        UnavailableError: If the server stays away for longer than `patience` seconds.
    """
    pause, most = _POLL_SECONDS
    away_since: float | None = None
    with _spinner(job, wanted=spinner) as show:
        while True:
            try:
                view = client.get("jobs", job)
            except UnavailableError:
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > patience:
                    raise
                show("the server does not answer; waiting for it")
            else:
                away_since = None
                if view["state"] in ENDED:
                    return view
                show(_progress(view))
            time.sleep(pause)
            pause = min(pause * 1.5, most)


@contextmanager
def _spinner(job: str, *, wanted: bool) -> Iterator[Callable[[str], None]]:
    """Give a function that shows a line beside a spinner, or nothing where no spinner is wanted."""
    if not wanted:
        yield lambda _text: None
        return
    from rich.console import Console  # noqa: PLC0415 - 100 ms that only a waiting terminal pays
    from rich.markup import escape  # noqa: PLC0415 - same

    with Console(stderr=True).status(escape(job)) as status:
        yield lambda text: status.update(escape(clean(f"{job}: {text}")))


def _progress(job: dict[str, Any]) -> str:
    if job["running_seconds"] is not None:
        return f"{job['state']}, running for {seconds(job['running_seconds'])}"
    return f"{job['state']}, waiting for {seconds(job['waiting_seconds'])}"
