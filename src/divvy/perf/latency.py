"""Latency profiles: how long a slice of each size takes for a batch, as measured; oddities are reported."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

#: A cell is a microsecond count; this stands for "does not fit in memory, or was not run".
INFEASIBLE: Final = -1

#: A fall of latency below this share of its neighbour counts as non-monotone (1 ms tables round).
_FALL: Final = 0.98
_ROUNDING_US: Final = 1_000


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement.

    Attributes:
        gpcs: Slice size in compute slices.
        batch: Items in one run.
        processes: Server processes that share the slice.
        latency_us: Time of one run, microseconds; `INFEASIBLE` where it did not fit.
        throughput: Items per second of one process, where given; 0 otherwise.
        utilisation: Share of the slice that was busy, where given; None otherwise.
    """

    gpcs: int
    batch: int
    processes: int
    latency_us: int
    throughput: float = 0.0
    utilisation: float | None = None


@dataclass(frozen=True, slots=True)
class Oddity:
    """Something in a profile that a person should know before trusting it.

    Attributes:
        code: ``out-of-memory``, ``non-monotone-batch``, ``non-monotone-slice``, ``repeated``, ``mismatch``,
            ``outlier``, ``hole``, ``not-measured`` or ``no-such-slice``.
        gpcs: Where.
        batch: Where.
        processes: Where.
        text: What is odd, with the numbers.
    """

    code: str
    gpcs: int
    batch: int
    processes: int
    text: str


@dataclass(frozen=True)
class LatencyProfile:
    """How long each slice size takes for each batch, with 1..n processes per slice.

    Between two measured batches the latency is interpolated linearly; if the upper one does not fit in
    memory, nothing between fits either (the careful reading). Values are used as measured, not smoothed.

    Attributes:
        model: Name of the model.
        cells: Every measurement.
        source: Where it comes from.
    """

    model: str
    cells: tuple[Cell, ...]
    source: str = ""
    _rows: dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    _use: dict[tuple[int, int, int], float] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        """Index the cells by slice and processes."""
        grouped: dict[tuple[int, int], list[Cell]] = {}
        for cell in self.cells:
            grouped.setdefault((cell.gpcs, cell.processes), []).append(cell)
            if cell.utilisation is not None:
                self._use[(cell.gpcs, cell.processes, cell.batch)] = cell.utilisation
        for key, row in grouped.items():
            row.sort(key=lambda cell: cell.batch)
            self._rows[key] = (tuple(c.batch for c in row), tuple(c.latency_us for c in row))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the slice sizes measured, ascending."""
        return tuple(sorted({gpcs for gpcs, _ in self._rows}))

    @property
    def has_utilisation(self) -> bool:
        """Return whether the profile says how busy the slice was."""
        return bool(self._use)

    def processes(self, gpcs: int) -> tuple[int, ...]:
        """Return the numbers of processes measured on a slice size, ascending."""
        return tuple(sorted(count for size, count in self._rows if size == gpcs))

    def batches(self, gpcs: int, processes: int = 1) -> tuple[int, ...]:
        """Return the batches that were measured and fit, ascending."""
        batches, times = self._rows.get((gpcs, processes), ((), ()))
        return tuple(batch for batch, time in zip(batches, times, strict=True) if time != INFEASIBLE)

    def latency_us(self, gpcs: int, batch: int, processes: int = 1) -> int:
        """Return the time of one run in microseconds, or `INFEASIBLE`."""
        batches, times = self._rows.get((gpcs, processes), ((), ()))
        if not batches or batch < 1 or batch > batches[-1]:
            return INFEASIBLE
        right = bisect_left(batches, batch)
        upper = times[right]
        if upper == INFEASIBLE or batches[right] == batch or right == 0:
            return upper
        lower, low, high = times[right - 1], batches[right - 1], batches[right]
        if lower == INFEASIBLE:
            return INFEASIBLE
        return lower + round((upper - lower) * (batch - low) / (high - low))

    def throughput(self, gpcs: int, batch: int, processes: int = 1) -> float:
        """Return items per second of the whole slice, all its processes together; 0 where it does not fit."""
        time = self.latency_us(gpcs, batch, processes)
        return 0.0 if time <= 0 else batch * processes * 1e6 / time

    def utilisation(self, gpcs: int, batch: int, processes: int = 1) -> float | None:
        """Return how busy the slice was at a measured batch, or None where nothing says."""
        return self._use.get((gpcs, processes, batch))


def slowed(profile: LatencyProfile, scale: float) -> LatencyProfile:
    """Return a profile with all times multiplied."""
    cells = tuple(
        cell if cell.latency_us == INFEASIBLE else replace(cell, latency_us=round(cell.latency_us * scale))
        for cell in profile.cells
    )
    return LatencyProfile(profile.model, cells, f"{profile.source} x {scale:g}")


def oddities(profile: LatencyProfile) -> tuple[Oddity, ...]:
    """Return everything odd about a profile, by slice, processes and batch; empty means nothing was found."""
    found: list[Oddity] = []
    by_key = {(c.gpcs, c.processes, c.batch): c for c in profile.cells}
    for gpcs in profile.sizes:
        for processes in profile.processes(gpcs):
            row = [c for c in profile.cells if (c.gpcs, c.processes) == (gpcs, processes)]
            row.sort(key=lambda cell: cell.batch)
            found += _row_oddities(row)
    for cell in sorted(profile.cells, key=lambda c: (c.gpcs, c.processes, c.batch)):
        found += _cell_oddities(cell, by_key, profile.sizes)
    return (*found, *_missing_cells(profile))


def _missing_cells(profile: LatencyProfile) -> Iterable[Oddity]:
    """Yield what a slice size lacks that another has: the trace of a table that was cut off."""
    every = {(cell.processes, cell.batch) for cell in profile.cells}
    for gpcs in profile.sizes:
        missing = sorted(every - {(c.processes, c.batch) for c in profile.cells if c.gpcs == gpcs})
        if missing:
            processes, batch = missing[0]
            text = f"{len(missing)} of the {len(every)} cells of other slices are not in the table: cut off?"
            yield Oddity("not-measured", gpcs, batch, processes, text)


def size_oddities(profile: LatencyProfile, offered: Iterable[int]) -> tuple[Oddity, ...]:
    """Return which slice sizes that a SKU offers were not measured, and which were that it does not offer."""
    sizes, there = set(profile.sizes), set(offered)
    return (
        *(Oddity("not-measured", size, 0, 1, "not in the table: not used") for size in sorted(there - sizes)),
        *(
            Oddity("no-such-slice", size, 0, 1, "this SKU has no such slice: the rows are not used")
            for size in sorted(sizes - there)
        ),
    )


def _row_oddities(row: list[Cell]) -> Iterable[Oddity]:
    for index, cell in enumerate(row):
        where = (cell.gpcs, cell.batch, cell.processes)
        before = row[index - 1] if index else None
        after = row[index + 1] if index + 1 < len(row) else None
        if cell.latency_us == INFEASIBLE:
            if any(later.latency_us != INFEASIBLE for later in row[index + 1 :]):
                yield Oddity("hole", *where, "does not fit, yet a larger batch does")
            else:
                yield Oddity("out-of-memory", *where, "zero: out of memory or not run")
            continue
        if before is None or before.latency_us == INFEASIBLE:
            continue
        if cell.latency_us < before.latency_us * _FALL - _ROUNDING_US / 2:
            text = f"{cell.latency_us / 1e3:g} ms, less than {before.latency_us / 1e3:g} ms of {before.batch}"
            yield Oddity("non-monotone-batch", *where, text)
        if after is not None and after.latency_us != INFEASIBLE:
            span = (cell.batch - before.batch) / (after.batch - before.batch)
            middle = before.latency_us + (after.latency_us - before.latency_us) * span
            if not 0.7 * middle - _ROUNDING_US <= cell.latency_us <= 1.5 * middle + _ROUNDING_US:
                text = f"{cell.latency_us / 1e3:g} ms where its neighbours suggest {middle / 1e3:.1f} ms"
                yield Oddity("outlier", *where, text)


def _cell_oddities(
    cell: Cell, cells: Mapping[tuple[int, int, int], Cell], sizes: tuple[int, ...]
) -> Iterable[Oddity]:
    if cell.latency_us == INFEASIBLE:
        return
    where = (cell.gpcs, cell.batch, cell.processes)
    index = sizes.index(cell.gpcs)
    smaller = cells.get((sizes[index - 1], cell.processes, cell.batch)) if index else None
    slowest = smaller.latency_us if smaller is not None else INFEASIBLE
    if smaller is not None and INFEASIBLE != slowest < (cell.latency_us - _ROUNDING_US / 2) * _FALL:
        text = f"{cell.latency_us / 1e3:g} ms, more than {slowest / 1e3:g} ms on {smaller.gpcs}"
        yield Oddity("non-monotone-slice", *where, text)
    for other in (
        cells.get((cell.gpcs, cell.processes - 1, cell.batch)),
        cells.get((cell.gpcs, cell.processes, cell.batch // 2)),
    ):
        if other is None or other == cell or cell.throughput <= 0:
            continue
        if (cell.throughput, cell.latency_us) == (other.throughput, other.latency_us):
            text = f"the same numbers as batch {other.batch}, {other.processes} processes: a copied row?"
            yield Oddity("repeated", *where, text)
    if cell.throughput > 0:
        implied = cell.batch * 1e6 / cell.throughput
        if abs(implied - cell.latency_us) > 0.15 * implied + _ROUNDING_US:
            text = f"latency {cell.latency_us / 1e3:g} ms, but the throughput implies {implied / 1e3:.1f} ms"
            yield Oddity("mismatch", *where, text)
