"""Start intervals for the API: asked of a process of their own, one at a time, kept for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from divvy.bootstrap import LiveSettings
from divvy.service.asked import ask_process
from divvy.service.foresight_process import question

COMPUTE_SECONDS: Final = 3.0
#: The longest that an answer waits; the process goes on and its result is there for the next question.
PATIENCE_SECONDS: Final = 6.0
_LIFE_SECONDS: Final = 60.0
_FRESH_SECONDS: Final = 30.0
_KEPT: Final = 1_000


class Foresight:
    """Computes and keeps start intervals.

    Args:
        settings: Of the control plane.
    """

    def __init__(self, settings: LiveSettings) -> None:
        self._settings = asdict(settings)
        self._kept: dict[str, tuple[float, dict[str, Any] | None]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()

    async def __call__(self, job: str, now: int) -> dict[str, Any] | None:
        """Return the start interval of a waiting job, None where it could not be computed in time."""
        kept = self._kept.get(job)
        if kept is not None and time.monotonic() - kept[0] < _FRESH_SECONDS:
            return kept[1]
        task = self._running.get(job)
        if task is None:
            if len(self._running) >= _KEPT:
                return None
            task = self._running[job] = asyncio.create_task(self._compute(job, now))
            task.add_done_callback(lambda _task: self._running.pop(job, None))
        await asyncio.wait([task], timeout=PATIENCE_SECONDS)
        kept = self._kept.get(job)
        return kept[1] if kept is not None else None

    async def _compute(self, job: str, now: int) -> None:
        async with self._turn:
            asked = question(self._settings, [job], now, COMPUTE_SECONDS)
            answer = await ask_process("divvy.service.foresight_process", asked, _LIFE_SECONDS)
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        starts: Mapping[str, Any] = answer.get("starts", {})
        self._kept[job] = (time.monotonic(), starts.get(job))
