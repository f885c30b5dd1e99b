"""Batch-size distributions: log-normal, fixed, uniform or weighted, and their buckets."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from divvy.errors import Fault, InputError

#: Upper edges of the buckets in which percentiles are reported; the last one is open.
BUCKET_EDGES: Final = (4, 8, 16, 32)
HELP: Final = (
    "lognormal:median=4,sigma=0.9,max=32 | fixed:8 | uniform:1-32 | weights:1=0.5,8=0.5 | FILE "
    "(CSV batch,weight, one batch per line, or a JSON object)"
)


@dataclass(frozen=True, slots=True)
class BatchDistribution:
    """How large queries are.

    Attributes:
        weights: Batch size to probability, ascending, summing to 1.
        text: As it was written.
    """

    weights: tuple[tuple[int, float], ...]
    text: str = ""

    @property
    def largest(self) -> int:
        """Return the largest batch that can occur."""
        return self.weights[-1][0]

    @property
    def batches(self) -> tuple[int, ...]:
        """Return the batches that can occur, ascending."""
        return tuple(batch for batch, _ in self.weights)

    def buckets(self) -> tuple[tuple[int, int], ...]:
        """Return the buckets that hold at least one batch, as (lowest, highest)."""
        low, found = 1, []
        edges = [*BUCKET_EDGES]
        while edges[-1] < self.largest:
            edges.append(edges[-1] * 2)
        for high in edges:
            if any(low <= batch <= high for batch in self.batches):
                found.append((low, high))
            low = high + 1
        return tuple(found)


def lognormal(median: float, sigma: float, largest: int) -> BatchDistribution:
    """Return the log-normal distribution in whole batches of 1..largest; the tails go to the ends."""
    if median <= 0 or sigma < 0 or largest < 1:
        raise InputError.one(
            "batch-lognormal", "median > 0, sigma >= 0 and max >= 1 are needed", path="--batch"
        )
    if sigma == 0:
        return from_weights({min(largest, max(1, round(median))): 1.0})

    def below(edge: float) -> float:
        return 0.5 * (1 + math.erf((math.log(edge) - math.log(median)) / (sigma * math.sqrt(2))))

    weights = {}
    for batch in range(1, largest + 1):
        low = 0.0 if batch == 1 else below(batch - 0.5)
        high = 1.0 if batch == largest else below(batch + 0.5)
        if high > low:
            weights[batch] = high - low
    return from_weights(weights)


def from_weights(weights: Mapping[int, float], text: str = "") -> BatchDistribution:
    """Return the distribution with the given weights, made to sum to 1.

    Raises:
        InputError: If a batch is not >= 1, a weight is negative, or nothing has weight.
    """
    faults = [
        Fault("batch-weight", "--batch", f"batch {batch}: weight {weight}", "batch >= 1, weight >= 0")
        for batch, weight in weights.items()
        if batch < 1 or not 0 <= weight < math.inf
    ]
    total = sum(weights.values())
    if not faults and total <= 0:
        faults.append(Fault("batch-weight", "--batch", "no batch has any weight", HELP))
    if faults:
        raise InputError("the batch distribution has faults", faults)
    return BatchDistribution(
        tuple((batch, weights[batch] / total) for batch in sorted(weights) if weights[batch] > 0), text
    )


def parse_batches(text: str) -> BatchDistribution | None:
    """Return the distribution that a text such as ``lognormal:median=4,sigma=0.9,max=32`` means.

    Returns None where the text has no known kind: then it names a file.

    Raises:
        InputError: If the kind is known and the rest is wrong.
    """
    kind, _, rest = text.partition(":")
    try:
        if kind == "lognormal":
            given = dict(part.split("=", 1) for part in rest.split(",") if part)
            unknown = set(given) - {"median", "sigma", "max"}
            if unknown or "median" not in given:
                raise ValueError(  # noqa: TRY301 - one place turns faults of a text into an InputError
                    f"median, sigma, max are known, not {sorted(unknown) or 'nothing'}"
                )
            made = lognormal(
                float(given["median"]), float(given.get("sigma", 0.9)), int(given.get("max", 32))
            )
        elif kind == "fixed":
            made = from_weights({int(rest): 1.0})
        elif kind == "uniform":
            low, _, high = rest.partition("-")
            made = from_weights(dict.fromkeys(range(int(low), int(high or low) + 1), 1.0))
        elif kind == "weights":
            pairs = (part.split("=", 1) for part in rest.split(",") if part)
            made = from_weights({int(batch): float(weight) for batch, weight in pairs})
        else:
            return None
    except ValueError as error:
        raise InputError.one("batch-text", f"{text!r}: {error}", path="--batch", allowed=HELP) from error
    return BatchDistribution(made.weights, text)


def read_batches(text: str, path: str = "") -> BatchDistribution:
    """Return the distribution in a file: ``batch,weight`` rows, one batch per line, or a JSON object.

    Raises:
        InputError: With every fault, each with its line.
    """
    if text.lstrip().startswith("{"):
        return _from_json(text, path)
    counts: Counter[int] = Counter()
    weights: dict[int, float] = {}
    faults: list[Fault] = []
    rows = [
        (number, row)
        for number, row in enumerate(csv.reader(text.splitlines()), start=1)
        if row and not row[0].lstrip().startswith("#")
    ]
    for position, (number, row) in enumerate(rows):
        try:
            batch = int(row[0])
            weight = float(row[1]) if len(row) > 1 else 1.0
        except ValueError:
            if position > 0:
                faults.append(Fault("batch-row", f"{path}:{number}", f"{','.join(row)!r}", "batch[,weight]"))
            continue
        counts[batch] += 1
        weights[batch] = weights.get(batch, 0.0) + weight
    if not faults and not weights:
        faults.append(Fault("batch-row", path, "no batch sizes in this file", HELP))
    if faults:
        raise InputError(f"{path or 'the distribution'} has faults", faults)
    return from_weights(weights, path)


def _from_json(text: str, path: str) -> BatchDistribution:
    try:
        document: Any = json.loads(text)
        weights = {int(batch): float(weight) for batch, weight in document.items()}
    except (ValueError, TypeError) as error:
        raise InputError.one("batch-json", str(error), path=path, allowed='{"1": 0.5, "8": 0.5}') from error
    return from_weights(weights, path)
