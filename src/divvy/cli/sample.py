"""The sample organisation of `divvy up --sample`, and the short jobs that keep its fleet alive for a while.

They are real processes, submitted as anybody would submit them; every name begins with ``example: ``.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from divvy.cli.client import Client, Target
from divvy.cli.sample_shown import show_examples
from divvy.errors import DivvyError

#: Two nodes, so that placement has something to decide, whatever the number of CPUs: the jobs hardly compute.
SAMPLE_SHAPE: Final = "2x4"

#: A short window and little patience, so that shares, preemption and return are seen within minutes; and
#: since nobody can have had a day's share yet, also accounts that are still owed may give way.
SAMPLE_BUDGET: Final[dict[str, Any]] = {
    "policy": {
        "lookback": "1h",
        "taper": "10m",
        "patience": "10s",
        "debug_patience": "3s",
        "reclaim_from_owed": True,
    },
    "accounts": {
        "research": {
            "share": 70,
            "owners": ["ada"],
            "vision": {"share": 50},
            "language": {"share": 50},
        },
        "product": {
            "share": 30,
            "owners": ["grace"],
            "search": {"share": 60},
            "assistant": {"share": 40},
        },
    },
}

_FIRST: Final = 7
_PERIOD_SECONDS: Final = 12.0
_LASTS_SECONDS: Final = 600.0

#: (name, account, GPUs, minimum runtime, runs for so many seconds, further members of the request)
_JOBS: Final[tuple[tuple[str, str, int, str, int, dict[str, Any]], ...]] = (
    ("train a detector", "research.vision", 3, "45s", 90, {"resumable": True}),
    ("pretrain", "research.language", 4, "1m", 120, {"resumable": True}),
    ("parameter sweep", "research.vision", 1, "0", 60, {"restart": True}),
    ("rank documents", "product.search", 2, "30s", 60, {"resumable": True}),
    ("debug a loss", "research.language", 1, "15s", 15, {}),
    ("answer questions", "product.assistant", 2, "30s", 45, {"resumable": True}),
    ("parameter sweep", "product.search", 1, "0", 60, {"restart": True}),
    ("notebook", "research.vision", 1, "20s", 40, {"kind": "interactive"}),
    ("evaluate", "research.language", 2, "20s", 30, {"priority": 1}),
    ("debug a batch", "product.assistant", 1, "15s", 10, {}),
)


def requests() -> Iterator[dict[str, Any]]:
    """Yield job requests for ever."""
    for number in itertools.count():
        name, account, gpus, min_runtime, seconds, more = _JOBS[number % len(_JOBS)]
        yield {
            "name": f"example: {name}",
            "account": account,
            "gpus": gpus,
            "min_runtime": min_runtime,
            "argv": ["/bin/sh", "-c", _SCRIPT, "example", str(seconds)],
            "cwd": "/",
            **more,
        }


_SCRIPT: Final = (
    'echo "example job $DIVVY_JOB_ID: $1 seconds"; step=0; '
    'while [ "$step" -lt "$1" ]; do sleep 1; step=$((step + 1)); '
    'echo "step $step of $1"; done; echo done'
)


class SampleJobs:
    """Submits the jobs over the Unix socket, a few at once and then one every few seconds.

    Args:
        path: The socket.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._client = Client(Target(f"unix:{path}", path))
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin, in threads that end with the process."""
        threading.Thread(target=self._submit_all, name="sample", daemon=True).start()
        threading.Thread(target=show_examples, args=(self._path,), name="sample-shown", daemon=True).start()

    def _submit_all(self) -> None:
        later = round(_LASTS_SECONDS / _PERIOD_SECONDS)
        for number, request in enumerate(itertools.islice(requests(), _FIRST + later)):
            if number >= _FIRST and self._stopped.wait(_PERIOD_SECONDS):
                return
            try:
                self._client.post("jobs", body=request)
            except DivvyError as error:
                if error.status == 503:
                    continue  # the API is being started again; the next one is due soon
                return  # this state directory has an organisation of its own
