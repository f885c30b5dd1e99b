"""Batch-size distributions: log-normal, fixed, uniform or weighted, and their buckets."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from divvy.errors import Fault, InputError
from divvy.perf.profile_csv import MOST_ITEMS
from divvy.perf.tables import read_rows
from divvy.units import parse_float, parse_json, parse_whole

#: Upper edges of the buckets in which percentiles are reported; the last one is open.
BUCKET_EDGES: Final = (4, 8, 16, 32)
_MOST_SIGMA: Final = 10.0
#: Weights further apart than this, or smaller, are no distribution that anybody measured.
_MOST_WEIGHT: Final = 1e15
_LEAST_WEIGHT: Final = 1e-15
#: A header of a table: its first cell begins with a letter, so that a damaged number is no header.
_HEADER: Final = re.compile(r"[A-Za-z]")
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
    """Return the log-normal distribution in whole batches of 1..largest; the tails go to the ends.

    Raises:
        InputError: If a number is not of its kind.
    """
    if not 0 < median <= MOST_ITEMS or not 0 <= sigma <= _MOST_SIGMA or not 1 <= largest <= MOST_ITEMS:
        raise InputError.one(
            "batch-lognormal",
            f"median {median:g}, sigma {sigma:g}, max {largest}",
            path="--batch",
            allowed=f"0 < median <= {MOST_ITEMS}, 0 <= sigma <= {_MOST_SIGMA:g}, 1 <= max <= {MOST_ITEMS}",
        )
    if sigma == 0:
        return from_weights({min(largest, max(1, round(median))): 1.0})

    def below(edge: float) -> float:
        return 0.5 * (1 + math.erf((math.log(edge) - math.log(median)) / (sigma * math.sqrt(2))))

    weights = {}
    for batch in range(1, largest + 1):
        low = 0.0 if batch == 1 else below(batch - 0.5)
        high = 1.0 if batch == largest else below(batch + 0.5)
        if high - low >= _LEAST_WEIGHT:  # what never occurs must not have to fit
            weights[batch] = high - low
    return from_weights(weights)


def from_weights(weights: Mapping[int, float], text: str = "") -> BatchDistribution:
    """Return the distribution with the given weights, made to sum to 1.

    Raises:
        InputError: If a batch is not of 1 to `MOST_ITEMS`, a weight is negative, or nothing has weight.
    """
    allowed = f"batches of 1 to {MOST_ITEMS}, weights of 0 to {_MOST_WEIGHT:g}"
    faults = [
        Fault("batch-weight", "--batch", f"batch {batch}: weight {weight}", allowed)
        for batch, weight in weights.items()
        if not 1 <= batch <= MOST_ITEMS or not (weight == 0 or _LEAST_WEIGHT <= weight <= _MOST_WEIGHT)
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
            given = _once(part.partition("=")[::2] for part in rest.split(",") if part)
            unknown = set(given) - {"median", "sigma", "max"}
            if unknown or "median" not in given:
                raise ValueError(  # noqa: TRY301 - one place turns faults of a text into an InputError
                    f"median, sigma, max are known, not {', '.join(sorted(unknown)) or 'nothing'}"
                )
            made = lognormal(
                parse_float(given["median"]),
                parse_float(given.get("sigma", "0.9")),
                parse_whole(given.get("max", "32")),
            )
        elif kind == "fixed":
            made = from_weights({parse_whole(rest): 1.0})
        elif kind == "uniform":
            low, _, high = rest.partition("-")
            made = _uniform(parse_whole(low), parse_whole(high))
        elif kind == "weights":
            pairs = _once(part.partition("=")[::2] for part in rest.split(",") if part)
            made = from_weights({parse_whole(batch): parse_float(weight) for batch, weight in pairs.items()})
        else:
            return None
    except ValueError as error:
        raise InputError.one("batch-text", f"{text!r}: {error}", path="--batch", allowed=HELP) from error
    return BatchDistribution(made.weights, text)


def _once(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return pairs as a mapping; a name that is there twice is refused."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name} is there twice")
        found[name] = value
    return found


def _uniform(low: int, high: int) -> BatchDistribution:
    if not 1 <= low <= high <= MOST_ITEMS:
        raise ValueError(f"from {low} to {high}: within 1 to {MOST_ITEMS}, the smaller one first")
    return from_weights(dict.fromkeys(range(low, high + 1), 1.0))


def read_batches(text: str, path: str = "") -> BatchDistribution:
    """Return the distribution in a file: ``batch,weight`` rows, one batch per line, or a JSON object.

    Raises:
        InputError: With every fault, each with its line.
    """
    if text.removeprefix("\ufeff").lstrip().startswith("{"):
        return _from_json(text.removeprefix("\ufeff"), path)
    rows, faults = read_rows(text, path, "batch-row")
    if rows and _HEADER.match(rows[0].cells[0]):
        rows = rows[1:]
    weights: dict[int, float] = {}
    for row in rows:
        try:
            batch = parse_whole(row.cells[0])
            weight = parse_float(row.cells[1]) if len(row.cells) > 1 else 1.0
        except ValueError:
            batch, weight = 0, 0.0
        if not 1 <= batch <= MOST_ITEMS or weight < 0 or len(row.cells) > 2:
            what = repr(",".join(row.cells))
            faults.append(Fault("batch-row", f"{path}:{row.line}", what, "batch[,weight]"))
            continue
        weights[batch] = weights.get(batch, 0.0) + weight
    if not faults and not weights:
        faults.append(Fault("batch-row", path, "no batch sizes in this file", HELP))
    if faults:
        raise InputError(f"{path or 'the distribution'} has faults", faults)
    return from_weights(weights, path)


def _from_json(text: str, path: str) -> BatchDistribution:
    try:
        document: Any = parse_json(text)
        weights = {parse_whole(batch): parse_float(str(weight)) for batch, weight in document.items()}
    except ValueError as error:
        raise InputError.one("batch-json", str(error), path=path, allowed='{"1": 0.5, "8": 0.5}') from error
    return from_weights(weights, path)
