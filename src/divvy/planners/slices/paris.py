"""PARIS (Kim, Choi, Rhu; DAC 2022), steps A to C verbatim, then a legal placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import Final

from divvy.errors import InputError
from divvy.perf.latency import INFEASIBLE
from divvy.planners.slices.base import Choice, Judge, Request, SlicePlan
from divvy.planners.slices.packing import Counts, as_counts, describe, fit, lay_out, slices_of

KNEES: Final = ("utilisation", "throughput", "marginal")
ROUNDINGS: Final = ("floor", "largest-remainder")
_KNEE: Final = 0.8
#: The marginal rule stops where doubling the batch adds less than this to the throughput.
_MARGINAL: Final = 0.2


@dataclass(frozen=True, slots=True)
class Paris:
    """PARIS with one of three readings of its knee and two of its rounding.

    Attributes:
        knee: ``utilisation`` (first batch that keeps the slice 80% busy, as published), ``throughput``
            (first batch with 80% of the slice's best throughput), ``marginal`` (first batch after which a
            larger one adds less than a fifth); empty for the first of these that the profile allows.
        rounding: ``floor`` (as published) or ``largest-remainder``.
    """

    knee: str = ""
    rounding: str = "floor"
    name: str = "paris"

    def __post_init__(self) -> None:
        """Refuse unknown readings.

        Raises:
            InputError: With the known ones.
        """
        for option, value, known in (
            ("knee", self.knee, ("", *KNEES)),
            ("rounding", self.rounding, ROUNDINGS),
        ):
            if value not in known:
                raise InputError.one(
                    "paris-option", f"{option}={value}", path="--planner", allowed=", ".join(known)
                )

    def plan(self, request: Request, judge: Judge, dispatcher: str) -> SlicePlan:  # noqa: ARG002
        """Return PARIS's layouts; `judge` is not asked."""
        knees, wanted = self._steps(request)
        per_gpu, dropped = fit(request.sku, as_counts(request.sku, wanted), request.gpus)
        layouts = tuple(lay_out(request.sku, shape) for shape in per_gpu)
        notes = [
            f"PARIS, knee by {self.rule(request)}, {self.rounding}: "
            + ", ".join(f"{size}g up to batch {knees[size]}" for size in request.sizes),
            "step C asks for " + (", ".join(f"{n} x {s}g" for s, n in wanted.items() if n) or "nothing"),
            f"placed as {describe(request.sku, per_gpu)}",
        ]
        if any(dropped):
            notes.append(f"{sum(dropped)} small slices dropped: step C does not know the placement rules")
        used = sum(slices_of(request.sku, layouts))
        idle = request.sku.compute_slices * request.gpus - used
        if idle:
            notes.append(f"{idle} of {idle + used} compute slices stay idle")
        return SlicePlan(layouts, Choice(slices_of(request.sku, layouts), dispatcher), tuple(notes))

    def rule(self, request: Request) -> str:
        """Return the reading of the knee: as published where the profile allows it, unless one was chosen."""
        return self.knee or ("utilisation" if request.profile.has_utilisation else "throughput")

    def fleet(self, request: Request) -> tuple[Counts, ...]:
        """Return the numbers of slices of each GPU."""
        return fit(request.sku, as_counts(request.sku, self._steps(request)[1]), request.gpus)[0]

    def _steps(self, request: Request) -> tuple[dict[int, int], dict[int, int]]:
        knees = {size: self.knee_batch(request, size) for size in request.sizes}
        return knees, slice_counts(request, segment_needs(request, knees), self.rounding)

    def knee_batch(self, request: Request, size: int) -> int:
        """Return MaxBatch_knee of a slice size (step A).

        Raises:
            InputError: If the knee is by utilisation and the profile has none.
        """
        profile, batches = request.profile, request.profile.batches(size)
        if not batches:
            return 0
        rule = self.rule(request)
        if rule == "utilisation":
            if not profile.has_utilisation:
                raise InputError.one(
                    "paris-utilisation",
                    f"the profile of {profile.model} has no utilisation",
                    path="--planner",
                    allowed="paris:knee=throughput, paris:knee=marginal",
                    fix="or add the column utilisation",
                )
            reached = (b for b in batches if (profile.utilisation(size, b) or 0.0) >= _KNEE)
            return next(reached, batches[-1])
        rates = [profile.throughput(size, batch) for batch in batches]
        if rule == "throughput":
            return next(b for b, rate in zip(batches, rates, strict=True) if rate >= _KNEE * max(rates))
        return _marginal_knee(batches, rates)


def _marginal_knee(batches: Sequence[int], rates: Sequence[float]) -> int:
    for i, batch in enumerate(batches[:-1]):
        doublings = (batches[i + 1] / batch - 1) or 1.0
        if rates[i + 1] / rates[i] - 1 < _MARGINAL * doublings:
            return batch
    return batches[-1]


def segment_needs(request: Request, knees: dict[int, int]) -> dict[int, float]:
    """Return R_k by slice size (step B): seconds of slice k per query, for the batches of its segment.

    The segment of k is (knee of the smaller size, knee of k]; the largest size takes the rest. R_k sums
    Dist[b] / Throughput[k][b], with the throughput in queries per second, so it sums Dist[b] x time. A batch
    that does not fit in the memory of its size is passed to the next larger one.
    """
    needs = dict.fromkeys(request.sizes, 0.0)
    for batch, weight in request.batches.weights:
        home = next((size for size in request.sizes if batch <= knees[size]), request.sizes[-1])
        able = [size for size in request.sizes if size >= home and request.time_us(size, batch) != INFEASIBLE]
        if able:
            needs[able[0]] += weight * request.time_us(able[0], batch) / 1e6
    return needs


def slice_counts(request: Request, needs: dict[int, float], rounding: str) -> dict[int, int]:
    """Return N_k by slice size (step C): x = compute slices / sum(R_k * k), N_k = floor(x * R_k)."""
    total = request.sku.compute_slices * request.gpus
    weight = sum(need * size for size, need in needs.items())
    if weight <= 0:
        return dict.fromkeys(needs, 0)
    ideal = {size: total / weight * need for size, need in needs.items()}
    counts = {size: floor(value + 1e-9) for size, value in ideal.items()}
    if rounding == "floor":
        return counts
    left = total - sum(size * count for size, count in counts.items())
    for size in sorted(ideal, key=lambda s: (counts[s] - ideal[s], s)):
        if size <= left and ideal[size] > counts[size]:
            counts[size] += 1
            left -= size
    return counts


def make_paris(text: str) -> Paris:
    """Return PARIS with options such as ``knee=marginal,rounding=floor``.

    Raises:
        InputError: If an option is unknown.
    """
    known = {"knee": KNEES, "rounding": ROUNDINGS}
    given: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name not in known or value not in known[name] or name in given:
            twice = " is there twice" if name in given else ""
            raise InputError.one(
                "paris-option",
                f"{part}{twice}",
                path="--planner",
                allowed="; ".join(f"{key}={'|'.join(values)}" for key, values in known.items()),
            )
        given[name] = value
    return Paris(given.get("knee", ""), given.get("rounding", "floor"))
