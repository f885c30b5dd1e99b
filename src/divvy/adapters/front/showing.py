"""What the router serves, shown to the control plane every few seconds (``divvy.serve.shown/1``).

Queries never wait for it: the document is made between two of them, bounded, and put by a thread; while one
is on the way no other is made. Nothing is kept of what could not be put, since the next one says more.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from divvy.adapters.front.models import Model, Models
from divvy.errors import DivvyError

SCHEMA: Final = "divvy.serve.shown/1"
EVERY_SECONDS: Final = 5.0
#: Rates are those of so many seconds.
RECENT_SECONDS: Final = 60.0
#: More back ends than these are counted only; more models are left out.
MOST: Final = 512

#: Puts a document on the page; raises `DivvyError` or `OSError` where it was not taken.
Put = Callable[[dict[str, Any]], object]


class _Seen(NamedTuple):
    """Counts at a time.

    Attributes:
        at: Monotonic seconds.
        queries: By model and outcome.
        served: Queries by slice.
        busy: Seconds by slice.
    """

    at: float
    queries: Mapping[str, Mapping[str, int]]
    served: Mapping[str, int]
    busy: Mapping[str, float]


class Showing:
    """Shows what the models of a process do.

    Args:
        put: Puts a document on the page.
        tell: Told why it is not taken, once as that begins.
        every_seconds: Pause between two documents.
    """

    def __init__(self, put: Put, tell: Callable[[str], None], every_seconds: float = EVERY_SECONDS) -> None:
        self._put, self._tell, self._every = put, tell, every_seconds
        self._seen: deque[_Seen] = deque()
        self._started = time.time()
        self._away = False

    async def run(self, models: Models, address: str, ended: asyncio.Event) -> None:
        """Show again and again, and once more at the end, that it has ended."""
        while True:
            last = ended.is_set()
            document = self.document(models, address, ended=last)
            await asyncio.to_thread(self._show, document)
            if last:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), self._every)

    def document(self, models: Models, address: str, *, ended: bool) -> dict[str, Any]:
        """Return what the routers do now, and what it did in the last minute."""
        rows = models.backends()
        now = _Seen(
            time.monotonic(),
            {one.router.model: one.router.counts() for one in models.all},
            {row["name"]: row["served"] for row in rows},
            {row["name"]: row["busy_seconds"] for row in rows},
        )
        before = self._before(now)
        return {
            "schema": SCHEMA,
            "address": address,
            "state": "ended" if ended else "serving",
            "started_at": self._started,
            "every_seconds": self._every,
            "models": [_model(one, now, before) for one in models.all[:MOST]],
            "backends": [{**row, **_backend(row, now, before)} for row in rows[:MOST]],
            "left_out": max(len(rows) - MOST, 0),
        }

    def _before(self, now: _Seen) -> _Seen:
        """Return the counts of a minute ago, or the oldest since the start; `now` where there are none."""
        while len(self._seen) > 1 and now.at - self._seen[1].at >= RECENT_SECONDS:
            self._seen.popleft()
        self._seen.append(now)
        return self._seen[0]

    def _show(self, document: dict[str, Any]) -> None:
        try:
            self._put(document)
        except (DivvyError, OSError) as error:
            if not self._away:
                self._tell(f"not shown on the page: {error}")
            self._away = True
        else:
            self._away = False


def _model(model: Model, now: _Seen, before: _Seen) -> dict[str, Any]:
    """Return the counts of a model, and its rate and attainment in the last minute."""
    name, spent = model.router.model, now.at - before.at
    counts = now.queries[name]
    recent = {key: count - before.queries[name][key] for key, count in counts.items()}
    asked = sum(recent[key] for key in ("met", "late", "refused", "lost"))
    return {
        "model": name,
        "rule": model.router.rule,
        "slo_ms": model.slo_us / 1e3,
        "waiting": model.router.desk.waiting,
        **counts,
        "recent_seconds": round(spent, 3),
        "rate_qps": round((recent["met"] + recent["late"]) / spent, 3) if spent > 0 else None,
        "attainment": round(recent["met"] / asked, 5) if asked else None,
    }


def _backend(row: Mapping[str, Any], now: _Seen, before: _Seen) -> dict[str, Any]:
    """Return the rate of a slice in the last minute, and which part of it the slice worked.

    Work counts when it ends, so a run that began before the minute would make more than all of it.
    """
    name, spent = row["name"], now.at - before.at
    served = row["served"] - before.served.get(name, 0)
    busy = row["busy_seconds"] - before.busy.get(name, 0.0)
    if spent <= 0 or served < 0:  # nothing to compare with: just begun, or a slice of this name is new
        return {"rate_qps": None, "busy": None}
    return {"rate_qps": round(served / spent, 3), "busy": round(min(max(busy / spent, 0.0), 1.0), 4)}
