"""The file of back ends that `divvy serve` reads, written from slices that run in the lab."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from divvy.adapters.front.config import backends_document
from divvy.adapters.lab.lab import Running
from divvy.errors import InputError, UnavailableError
from divvy.perf.latency import LatencyProfile, slowed


@dataclass(frozen=True, slots=True)
class Written:
    """The file for `divvy serve`: its path (None: none) and the objective in it (0: 1.5 x the largest)."""

    path: Path | None
    slo_ms: float


def write_backends(
    path: Path,
    running: Sequence[Running],
    profile: str,
    slo_ms: float,
    *,
    rule: str = "divvy",
    price: Mapping[int, float] | None = None,
) -> None:
    """Write the file that `divvy serve` reads, whole or not at all.

    Args:
        path: The file.
        running: The slices.
        profile: Latency profile of the model, as `divvy serve` takes it.
        slo_ms: Objective of a query.
        rule: Dispatch rule.
        price: Price by compute slices, for rules that weigh.

    Raises:
        InputError: If a directory, a device or the like has the name.
        UnavailableError: If it cannot be written.
    """
    prices = price or {}
    rows = [
        {
            "name": one.spec.name,
            "url": one.url,
            "gpcs": one.spec.gpcs,
            "price": prices.get(one.spec.gpcs, float(one.spec.gpcs)),
        }
        for one in running
    ]
    model = running[0].spec.model if running else "none"
    text = json.dumps(backends_document(model, profile, slo_ms, rule, rows), indent=1) + "\n"
    draft = path.with_name(path.name + ".new")
    if path.exists() and not path.is_file():
        raise InputError.one("unwritable", f"{path} is no plain file", path="--backends", fix="name a file")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise UnavailableError.one("unwritable", f"{path}: {error.strerror}", path="--backends") from error


def write_profile(path: Path, profile: LatencyProfile) -> None:
    """Write a profile as a CSV file that `divvy serve` can read."""
    rows = [
        f"{profile.model},{cell.gpcs},{cell.batch},{max(cell.latency_us, 0) / 1e3:g}"
        for cell in profile.cells
        if cell.processes == 1
    ]
    path.write_text("\n".join(["model,slice,batch,latency_ms", *rows]) + "\n", encoding="utf-8")


def write_for_lab(
    written: Written,
    running: Sequence[Running],
    text: str,
    profile: LatencyProfile,
    scale: float,
    largest: int,
) -> None:
    """Write the file, and beside it the profile, where the times are not the table's.

    Args:
        written: Where, and the objective.
        running: The slices.
        text: The profile as it was named.
        profile: The profile.
        scale: Factor on its times.
        largest: Largest batch that is accepted.
    """
    if written.path is None:
        return
    if scale != 1.0:
        text, profile = f"{written.path}.profile.csv", slowed(profile, scale)
        write_profile(Path(text), profile)
    top = max(profile.sizes)
    batch = max(batch for batch in profile.batches(top) if batch <= largest)
    write_backends(written.path, running, text, written.slo_ms or 1.5 * profile.latency_us(top, batch) / 1e3)
