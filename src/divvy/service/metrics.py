"""Numbers for Prometheus, on a registry of their own, read from the mirror at the moment of the scrape.

Names follow the Prometheus conventions (base units, ``_total`` for counters). Accounts are the only label
whose values people choose; the number of series is a few per account, node state and phase, never per job.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from divvy.control.view import View
from divvy.service.mirror import Mirror
from divvy.service.ports import SchedulerHealth
from divvy.units import HOUR, SECOND

_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0)


class Metrics:
    """The registry and what is counted as it happens.

    Args:
        mirror: What the fleet looks like.
        now: Wall clock, ms.
        health: The scheduler's own word.
    """

    def __init__(
        self, mirror: Mirror, now: Callable[[], int], health: Callable[[], SchedulerHealth | None]
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # one more series per series, for the same story
        self._registry = CollectorRegistry()
        self._registry.register(_Fleet(mirror, now, health))
        self._requests = Counter(
            "divvy_api_requests",
            "Requests answered.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._latency = Histogram(
            "divvy_api_request_seconds",
            "Time to answer a request; a stream counts until its end.",
            ("route",),
            buckets=_BUCKETS,
            registry=self._registry,
        )

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._latency.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Return everything in the text format of Prometheus."""
        return generate_latest(self._registry)


class _Fleet(Collector):
    """Gauges of the fleet."""

    def __init__(
        self, mirror: Mirror, now: Callable[[], int], health: Callable[[], SchedulerHealth | None]
    ) -> None:
        self._mirror = mirror
        self._now = now
        self._health = health

    def collect(self) -> Iterator[Metric]:
        """Yield the families; what is not known yet is left out rather than zero."""
        view, board = self._mirror.view, self._mirror.board
        yield _gauge(
            "divvy_store_readable", "Whether the last read succeeded.", float(not self._mirror.fault)
        )
        if view is None:
            return
        now = self._now()
        yield _gauge("divvy_data_age_seconds", "Age of the published state.", (now - view.at) / SECOND)
        yield _gauge("divvy_state_version", "Version of the published state.", view.version)
        yield from _accounts(view)
        yield from _nodes(view)
        states = Tally(job.label(now) for job in board.running.values())
        states["accepted"] = len(board.unseen)
        states["preempted"] = board.again
        states["queued"] = board.waiting - board.again - len(board.unseen)
        yield _by("divvy_jobs", "Live jobs.", "state", states)
        waits = Tally(wait.reason.name.lower().replace("_", "-") for wait in view.waits.values())
        yield _by("divvy_jobs_waiting_by_reason", "Jobs that the last pass tried and left.", "reason", waits)


def _accounts(view: View) -> Iterator[Metric]:
    hour = HOUR * view.mean_weight
    columns: dict[str, tuple[str, dict[str, float]]] = {
        "balance": ("Usage over entitlement in the window; 1 is exactly served.", {}),
        "floor_devices": ("Devices below which nobody pushes it while it has demand.", {}),
        "held_devices": ("Devices of its allocated jobs.", {}),
        "unallocated_devices": ("Devices of its unallocated jobs.", {}),
        "waiting_jobs": ("Its queued allocated jobs.", {}),
        "waiting_devices": ("Their devices.", {}),
        "entitlement_gpu_hours": ("What the window owes it.", {}),
        "usage_gpu_hours": ("What the window counts against it.", {}),
    }
    for account in view.accounts:
        values: dict[str, float | None] = {
            "balance": account.balance if account.balance >= 0 else None,
            "floor_devices": account.floor if account.floor >= 0 else None,
            "held_devices": account.held,
            "unallocated_devices": account.unallocated,
            "waiting_jobs": account.waiting,
            "waiting_devices": account.waiting_gpus,
            "entitlement_gpu_hours": account.entitlement / hour,
            "usage_gpu_hours": account.usage / hour,
        }
        for name, value in values.items():
            if value is not None:
                columns[name][1][account.path] = value
    for name, (text, column) in columns.items():
        yield _by(f"divvy_account_{name}", text, "account", column)


def _nodes(view: View) -> Iterator[Metric]:
    devices: Tally[str] = Tally()
    nodes: Tally[str] = Tally()
    for sight in view.nodes:
        devices[sight.node.state.name.lower()] += sight.node.gpus
        nodes[sight.node.state.name.lower()] += 1
    yield _by("divvy_nodes", "Nodes.", "state", nodes)
    yield _by("divvy_devices", "Devices.", "node_state", devices)
    yield _gauge("divvy_devices_free", "Devices that take work now.", sum(s.free for s in view.nodes))


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _by(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family


def _scheduler(health: SchedulerHealth | None) -> Iterator[Metric]:
    if health is None:
        return
    yield _gauge("divvy_scheduler_up", "Whether the scheduler decides.", float(health.state == "running"))
    yield _gauge("divvy_pass_seconds", "How long the last pass took.", health.pass_ms / SECOND)
    yield _gauge("divvy_journal_entries", "Number of the last journal entry.", health.seq)
    yield _gauge("divvy_scheduler_restarts", "Starts after a failure, since `divvy up`.", health.restarts)
