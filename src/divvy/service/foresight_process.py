"""The foresight process: computes start intervals for one question and ends; nothing waits for it.

It runs at the lowest priority, away from the scheduler and from the API, reads a question as one line of JSON
and answers with one. Whoever asks ends it when it takes too long.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from divvy.bootstrap import LiveSettings
from divvy.bootstrap.foresight import foresee
from divvy.errors import EXIT_OK, DivvyError
from divvy.units import SECOND


def question(settings: dict[str, Any], jobs: list[str], now: int, seconds: float) -> bytes:
    """Return what the process is to be asked, for its standard input."""
    return json.dumps({"settings": settings, "jobs": jobs, "now": now, "seconds": seconds}).encode()


def main() -> int:
    """Answer one question; return the exit code."""
    os.nice(10)
    asked = json.loads(sys.stdin.read())
    try:
        found = foresee(LiveSettings(**asked["settings"]), asked["jobs"], asked["now"], asked["seconds"])
    except DivvyError as error:
        sys.stdout.write(json.dumps({"problem": str(error)}))
        return error.exit_code
    told = {
        job: {
            "p50_at": interval.p50 / SECOND,
            "p90_at": interval.p90 / SECOND,
            "futures": interval.futures,
            "started_in": interval.seen,
            "computed_at": asked["now"] / SECOND,
        }
        for job, interval in found.items()
    }
    sys.stdout.write(json.dumps({"starts": told}))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
