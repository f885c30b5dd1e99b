"""What somebody who follows a job is told meanwhile: that it waits, and that the control plane is away."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, Final

from divvy.cli.client import Client
from divvy.cli.render import clean
from divvy.cli.wait import ENDED, PATIENCE_SECONDS
from divvy.errors import DivvyError, UnavailableError

_LOOK_SECONDS: Final = 2.0
PAUSE_SECONDS: Final = 0.5


class Told:
    """Looks at a job now and then and says on standard error what its log cannot say.

    Args:
        client: Asks the server.
        job: Id.
        quiet: Say nothing.
    """

    def __init__(self, client: Client, job: str, *, quiet: bool) -> None:
        self._client = client
        self._job = job
        self._quiet = quiet
        self._said = ""
        self._away_since: float | None = None
        self._lock = threading.Lock()
        self.attempt = 0
        """Runs begun when it was looked at last."""

    def look(self) -> dict[str, Any]:
        """Return the job, and say that it waits if it does."""
        job = self._client.get("jobs", self._job)
        self.attempt = int(job["attempt"])
        state = str(job["state"])
        waits = state.partition("(")[0] in ("accepted", "queued", "preempted") and state not in ENDED
        self._say(f"{job['id']} waits ({state}); divvy explain {job['id']} says why" if waits else "")
        return job

    def start(self) -> None:
        """Go on looking in the background."""
        threading.Thread(target=self._watch, daemon=True).start()

    def progress(self) -> tuple[int, bool]:
        """Return how many runs the job has begun, and whether it is over.

        Raises:
            UnavailableError: If the server does not answer.
        """
        job = self.look()
        return self.attempt, job["state"] in ENDED

    def away(self, error: UnavailableError) -> None:
        """Wait a moment for a server that does not answer.

        Raises:
            UnavailableError: The error, when it has been away for too long.
        """
        with self._lock:
            now = time.monotonic()
            self._away_since = self._away_since or now
            if now - self._away_since > PATIENCE_SECONDS:
                raise error
        self._say("the control plane does not answer; waiting for it")
        time.sleep(PAUSE_SECONDS)

    def back(self) -> None:
        """Note that the server answers."""
        self._away_since = None

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            try:
                self.look()
            except DivvyError:  # whoever reads the log notices too, and says it
                continue

    def _say(self, text: str) -> None:
        with self._lock:
            if text == self._said:
                return
            self._said = text
        if text and not self._quiet:
            print(clean(text), file=sys.stderr, flush=True)
