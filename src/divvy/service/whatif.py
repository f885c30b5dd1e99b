"""What-if questions for the API: one at a time in a process of their own, answers kept for a while."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from divvy.bootstrap import LiveSettings
from divvy.errors import UnavailableError, problem_to_error
from divvy.service.asked import ask_process

#: The longest that an answer waits; the process goes on, and the same question finds its result later.
PATIENCE_SECONDS: Final = 12.0
_LIFE_SECONDS: Final = 120.0
_FRESH_SECONDS: Final = 60.0
_MOST_WAITING: Final = 8
_KEPT: Final = 32


class WhatIf:
    """Asks and keeps.

    Args:
        settings: Of the control plane.
    """

    def __init__(self, settings: LiveSettings) -> None:
        self._settings = asdict(settings)
        self._kept: dict[str, tuple[float, dict[str, Any]]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()

    async def __call__(self, question: Mapping[str, Any], now: int) -> dict[str, Any]:
        """Return the answer to a question at a time (ms).

        Raises:
            DivvyError: If the question has no answer.
            UnavailableError: If the answer is not there yet, or too many are asked.
        """
        key = json.dumps(question, sort_keys=True)
        kept = self._kept.get(key)
        if kept is None or time.monotonic() - kept[0] > _FRESH_SECONDS:
            task = self._running.get(key) or self._begin(key, question, now)
            await asyncio.wait([task], timeout=PATIENCE_SECONDS)
            if not task.done():
                raise UnavailableError.one(
                    "whatif-computing",
                    "the jobs are still being replayed",
                    fix="ask again in a few seconds: the replay goes on",
                )
            kept = self._kept.get(key)
        if kept is None or not kept[1]:
            raise UnavailableError.one(
                "whatif-none", "no answer could be computed", fix="ask about fewer hours; api.log says why"
            )
        if "problem" in kept[1]:
            raise problem_to_error(kept[1]["problem"])
        found: dict[str, Any] = kept[1]["found"]
        return found

    def _begin(self, key: str, question: Mapping[str, Any], now: int) -> asyncio.Task[None]:
        if len(self._running) >= _MOST_WAITING:
            raise UnavailableError.one(
                "whatif-busy",
                f"{len(self._running)} other questions are being computed",
                allowed=f"{_MOST_WAITING} at a time",
                fix="ask again in a minute",
            )
        task = self._running[key] = asyncio.create_task(self._compute(key, question, now))
        task.add_done_callback(lambda _task: self._running.pop(key, None))
        return task

    async def _compute(self, key: str, question: Mapping[str, Any], now: int) -> None:
        asked = json.dumps({"settings": self._settings, "question": question, "now": now}).encode()
        async with self._turn:
            found = await ask_process("divvy.service.whatif_process", asked, _LIFE_SECONDS)
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        self._kept[key] = (time.monotonic(), found)
