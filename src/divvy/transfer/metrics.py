"""Metrics of an agent for Prometheus, labelled by route, peer and rail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from divvy.transfer.machine.rails import Rail
from divvy.transfer.outgoing import Outgoing

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)


class Metrics:
    """The metrics of one agent, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        at = self.registry
        way = ("peer", "route", "rail")
        self._moved = Counter(
            "divvy_transfer_bytes", "Bytes of chunks that arrived whole, each counted once.", way, registry=at
        )
        self._rate = Gauge(
            "divvy_transfer_rail_bytes_per_second", "Achieved rate of a rail.", way, registry=at
        )
        self._up = Gauge("divvy_transfer_rail_up", "Whether a rail takes chunks.", way, registry=at)
        self._lost = Gauge("divvy_transfer_rail_lost", "Times a rail broke or fell silent.", way, registry=at)
        self._ended = Counter(
            "divvy_transfers", "Transfers that ended.", ("peer", "verdict", "account"), registry=at
        )
        self._retries = Counter(
            "divvy_transfer_retries", "Chunks that were sent again.", ("peer",), registry=at
        )
        self._corrupt = Counter(
            "divvy_transfer_corrupt", "Chunks with a wrong checksum.", ("peer",), registry=at
        )
        self._proof = Counter(
            "divvy_transfer_path_mismatches",
            "Transfers whose path was not the planned one.",
            ("peer",),
            registry=at,
        )
        self._seconds = Histogram(
            "divvy_transfer_seconds", "Time of a transfer.", ("peer",), buckets=_SECONDS, registry=at
        )
        self._ratio = Histogram(
            "divvy_transfer_prediction_ratio",
            "Time of a transfer over its prediction.",
            ("peer",),
            buckets=(0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2, 4),
            registry=at,
        )
        self._refused = Counter(
            "divvy_transfer_refused", "Connections that were refused.", ("code",), registry=at
        )
        self._received = Counter(
            "divvy_transfer_received_bytes", "Bytes that arrived whole.", ("sender", "rail"), registry=at
        )

    def ended(self, peer: str, outgoing: Outgoing, document: dict[str, Any]) -> None:
        """Count a transfer that ended."""
        for row in document["rails"]:
            if row["bytes"]:
                self._moved.labels(peer, row["route"], row["route"].split(">")[0]).inc(row["bytes"])
        self._ended.labels(peer, document["verdict"], document["account"]).inc()
        self._retries.labels(peer).inc(document["retries"])
        self._corrupt.labels(peer).inc(document["corrupt_chunks"])
        self._proof.labels(peer).inc(not document["path_proof"]["agrees"])
        self._seconds.labels(peer).observe(document["seconds"])
        if outgoing.alone:
            self._ratio.labels(peer).observe(document["prediction"]["ratio"])

    def rails(self, peer: str, rails: Iterable[Rail]) -> None:
        """Show the rails to a peer as they are."""
        for rail in rails:
            way = (peer, rail.name, rail.name.split(">")[0])
            self._rate.labels(*way).set(rail.rate * 1e6)
            self._up.labels(*way).set(rail.usable)
            self._lost.labels(*way).set(rail.lost)

    def received(self, sender: str, moved: dict[str, int]) -> None:
        """Count what a transfer brought."""
        for rail, size in moved.items():
            self._received.labels(sender, rail).inc(size)

    def refused(self, code: str) -> None:
        """Count a connection that was refused."""
        self._refused.labels(code).inc()

    def text(self) -> bytes:
        """Return the metrics as Prometheus reads them."""
        return generate_latest(self.registry)
