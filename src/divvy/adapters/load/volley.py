"""What is sent, and what came of it: arrays by query, in microseconds from the start."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Plan:
    """Queries to send.

    Attributes:
        due_us: When each is due, ascending.
        batches: Items of each.
        path: Path of the requests.
        headers: Header lines that every request carries.
        slo_us: What counts as late, for `most_late`.
        most_late: With more late queries than this the rest is not sent any more; negative: send all.
    """

    due_us: Ints
    batches: Ints
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    slo_us: int = 0
    most_late: int = -1

    def bodies(self) -> dict[int, bytes]:
        """Return the body of a request by batch size (Open Inference Protocol, one value per item)."""
        return {batch: infer_body(batch) for batch in sorted({int(b) for b in self.batches})}


@dataclass(frozen=True, slots=True)
class Volley:
    """What became of the queries of a plan.

    Attributes:
        latency_us: From the time when the query was due (not from when it was sent) to the whole answer.
        status: HTTP status; 0 where the connection broke, -1 where there was no answer in time.
        late_us: How much later than due each was sent: what the generator itself adds.
    """

    latency_us: Ints
    status: Ints
    late_us: Ints

    @property
    def good(self) -> NDArray[np.bool_]:
        """Return which queries were answered well."""
        good: NDArray[np.bool_] = self.status == 200
        return good


def infer_body(batch: int) -> bytes:
    """Return the body of an inference request of so many items."""
    document = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [batch, 1], "data": [0.0] * batch}],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def to_lists(volley: Volley) -> dict[str, Any]:
    """Return a volley as JSON can hold it."""
    return {
        "latency_us": volley.latency_us.tolist(),
        "status": volley.status.tolist(),
        "late_us": volley.late_us.tolist(),
    }


def from_lists(document: dict[str, Sequence[int]]) -> Volley:
    """Return what `to_lists` wrote."""
    return Volley(*(np.array(document[name], np.int64) for name in ("latency_us", "status", "late_us")))
