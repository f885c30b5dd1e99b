"""How well the time of a transfer is known in advance: Divvy's prediction beside NIXL's estimate."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Final

from divvy.cli import bench_transfers_crew as who
from divvy.cli.bench_row import Row, figure, median, quantile
from divvy.cli.bench_transfers_crew import Contender, Crew, CrewError, Move
from divvy.cli.bench_transfers_setting import MIB, Setting, missing_rows

_SIZES: Final = (4096, 64 << 10, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
_PIECES: Final = (1, 16, 256, 4096, 16_384)
_LEAST_PIECE: Final = 64
_LEARN: Final = 2


def prediction_rows(setting: Setting) -> Iterator[Row]:
    """Yield the errors of predictions over sizes and descriptors, on rails and over loopback."""
    lacking: dict[str, str] = {}
    for case, loopback in (("prediction on rails, 4 + 1 Gbit", False), ("prediction over loopback", True)):
        for contender in (who.DIVVY_NIXL, who.DIVVY_TCP, who.NIXL_DEFAULT):
            if not who.has(contender):
                lacking[contender.label] = f"package {contender.module} is not installed"
                continue
            setting.announce(f"{case}: {contender.label}")
            try:
                errors = _errors(setting, contender, loopback=loopback)
            except CrewError as error:
                yield from missing_rows(case, {contender.label: str(error)})
                continue
            yield from _rows(case, contender, errors, aimed=not loopback)
    yield from missing_rows("prediction", lacking)


def _grid(*, quick: bool) -> list[tuple[int, int]]:
    """Return (bytes, descriptors) of every combination that makes sense."""
    sizes = _SIZES[:3] if quick else _SIZES
    return [(size, pieces) for size in sizes for pieces in _PIECES if size // pieces >= _LEAST_PIECE]


def _errors(setting: Setting, contender: Contender, *, loopback: bool) -> list[float]:
    """Return the logarithms of predicted over real time, each combination in random order.

    The first runs of the grid are for learning, as a fleet's first minutes are; NIXL learns nothing, but
    its first runs are left out too.
    """
    grid, out = _grid(quick=setting.quick), list[float]()
    largest = max(size for size, _ in grid) + 2 * MIB
    rng = random.Random(8)  # noqa: S311 - an order
    with (
        setting.lab("4gbit,1gbit", 2) as lab,
        Crew(lab.fabric, contender, largest, loopback=loopback) as crew,
    ):
        learn = 1 if setting.quick or loopback else _LEARN
        for turn in range(2 * learn):
            for size, pieces in rng.sample(grid, len(grid)):
                moved = crew.run([Move(0, 1, size, pieces)])[0]
                # Divvy predicts until both sides have accounted all; what it says of that later is not in it.
                real = moved.report["seconds"] if moved.report else moved.seconds
                if moved.estimate_s and moved.estimate_s > 0 and turn >= learn:
                    out.append(math.log(moved.estimate_s / real))
    return out


def _rows(case: str, contender: Contender, errors: Sequence[float], *, aimed: bool) -> Iterator[Row]:
    if not errors:
        yield from missing_rows(case, {contender.label: "it gave no prediction"})
        return
    sizes = [abs(error) for error in errors]
    own = contender.kind == "divvy" and aimed
    note = "4 KiB to 256 MiB, 1 to 16,384 descriptors; absolute logarithm of predicted over real time"
    worst = f"{note}; worst: {math.exp(max(sizes)):.3g} times off"
    for measure, value, target, text in (
        ("median error", median(sizes), 0.10, note),
        ("p95 error", quantile(sizes, 0.95), 0.5, worst),
    ):
        yield figure(
            case,
            measure,
            value,
            "log ratio",
            contender=contender.label,
            n=len(sizes),
            target=target if own else None,
            note=text,
        )
