"""The request router for Ray Serve: ELSA (or another rule of the replay) over replicas of unequal speed.

Serve asks for ranks of replicas and takes, within a rank, the one with the shortest queue: which is just what
goes wrong with unequal ones. So each rank here holds one replica.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from divvy.adapters.rayserve.query import batch_of, headers_of, slo_us_of
from divvy.adapters.rayserve.replica import gpcs_of
from divvy.adapters.rayserve.setting import read_setting
from divvy.planners.queries.book import Book

#: Ray is an extra: its base class is Any here, whether or not Ray is installed.
_Base: Any = import_module("ray.serve.request_router").RequestRouter
_DRAWS: Final = 1 << 40
_STEP: Final = 0x9E3779B97F4A7C15


class ElsaRouter(_Base):  # type: ignore[misc]  # the base is Any, see above
    """Ranks replicas by a dispatch rule on what each was given and how long its slice takes.

    Use it as ``request_router_class`` with ``request_router_kwargs`` of ``profile``, ``slo_ms`` and ``rule``
    (`divvy.rayserve.read_setting`). Replicas derive from `SliceReplica`. One that has not yet published its
    slice is tried last. A router knows what went through itself: several proxies each keep their own book.
    """

    def initialize_state(self, **kwargs: Any) -> None:
        """Read the settings (Serve calls this once).

        Raises:
            InputError: If they have faults.
        """
        self._setting = read_setting(kwargs)
        self._book = Book(self._setting.profile, self._setting.largest)
        self._asked: dict[str, int] = {}
        self._drawn = 0

    async def choose_replicas(
        self, candidate_replicas: Sequence[Any], pending_request: Any = None
    ) -> list[list[Any]]:
        """Return the candidates as ranks of one, best first."""
        sizes = {one.replica_id: gpcs_of(one.routing_stats) for one in candidate_replicas}
        self._book.keep({name: gpcs for name, gpcs in sizes.items() if gpcs is not None})
        silent = [one for one in candidate_replicas if sizes[one.replica_id] is None]
        if pending_request is None:
            return [[one] for one in candidate_replicas]
        headers = headers_of(pending_request.args)
        batch = batch_of(pending_request.args, pending_request.kwargs, headers)
        slo_us = slo_us_of(headers, self._setting.slo_us)
        self._drawn = (self._drawn + _STEP) % _DRAWS
        now = _now_us()
        names = self._book.rank(self._setting.rule, self._setting.params, batch, now, slo_us, self._drawn)
        query = pending_request.metadata.internal_request_id
        self._asked[query] = batch
        if names:
            self._book.give(query, names[0], batch, now)
        by_name = {one.replica_id: one for one in candidate_replicas}
        ranked = [by_name[name] for name in names] + silent
        return [[one] for one in ranked] or [[one] for one in candidate_replicas]

    def on_request_routed(self, pending_request: Any, replica_id: Any, result: Any) -> None:  # noqa: ARG002 - Serve's
        """Note where a query really went (Serve calls this)."""
        query = pending_request.metadata.internal_request_id
        batch = self._asked.pop(query, 1)
        if self._book.where(query) != replica_id:
            self._book.give(query, replica_id, batch, _now_us())

    def on_request_completed(self, replica_id: Any, internal_request_id: str) -> None:  # noqa: ARG002 - Serve's
        """Note that a query has ended (Serve calls this)."""
        self._asked.pop(internal_request_id, None)
        self._book.take(internal_request_id, _now_us())


def _now_us() -> int:
    return time.monotonic_ns() // 1000
