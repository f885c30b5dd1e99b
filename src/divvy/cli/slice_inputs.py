"""What the verbs of `divvy slices` read: SKUs, profiles, batch distributions, objectives, traces."""

from __future__ import annotations

import csv
import json
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from divvy.errors import Fault, InputError, NotFoundError
from divvy.fleet.mig.parse.profiles import read_table
from divvy.fleet.mig.profile import Sku
from divvy.fleet.mig.skus import find_sku
from divvy.perf.fitted import fitted_models, fitted_profile
from divvy.perf.latency import INFEASIBLE, LatencyProfile
from divvy.perf.profile_csv import read_profile
from divvy.perf.traffic import HELP as BATCH_HELP
from divvy.perf.traffic import BatchDistribution, parse_batches, read_batches
from divvy.planners.slices.base import Request
from divvy.sim.queries.arrivals import HELP as ARRIVALS_HELP

DEFAULT_BATCH: Final = "lognormal:median=4,sigma=0.9,max=32"
_FITTED: Final = "fitted:"


def read_file(path: Path, option: str) -> str:
    """Return a file's text.

    Raises:
        NotFoundError: If there is no such file.
        InputError: If it cannot be read as text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError.one("no-file", f"no file {path}", path=option) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError.one("unreadable", f"{path}: {error}", path=option) from error


def load_sku(name: str, table: Path | None = None) -> Sku:
    """Return a SKU by name, or learned from a file with the output of ``-lgip`` and ``-lgipp``."""
    if table is None:
        return find_sku(name)
    return read_table(read_file(table, "--table"), name, str(table))


def load_profile(text: str) -> LatencyProfile:
    """Return the profile in a CSV file, or a fitted one (``fitted:resnet50``)."""
    if text.startswith(_FITTED):
        return fitted_profile(text.removeprefix(_FITTED))
    path = Path(text)
    if path.is_dir():
        raise InputError.one(
            "profile-directory", f"{path} is a directory", path="--profile", fix="name one CSV file in it"
        )
    return read_profile(read_file(path, "--profile"), path.stem, str(path))


def load_profiles(text: str) -> list[LatencyProfile]:
    """Return the profiles of a directory (every CSV file that is one), of one file, or all fitted ones.

    Raises:
        InputError: If a file is damaged, or there is none; with the faults of all files.
    """
    if text == _FITTED.removesuffix(":"):
        return [fitted_profile(name) for name in fitted_models()]
    if not Path(text).is_dir():
        return [load_profile(text)]
    found: list[LatencyProfile] = []
    faults: list[Fault] = []
    for path in sorted(Path(text).glob("*.csv")):
        try:
            found.append(load_profile(str(path)))
        except InputError as error:
            faults += error.faults
    if not found and not faults:
        faults.append(Fault("no-profiles", "--profile", f"no CSV file in {text}"))
    if faults:
        raise InputError(f"the profiles in {text} have faults", faults)
    return found


def load_batches(text: str) -> BatchDistribution:
    """Return a batch distribution: a text that says it, or a file."""
    said = parse_batches(text)
    if said is not None:
        return said
    if not Path(text).exists():
        raise InputError.one(
            "batch-text", f"{text!r} is neither a distribution nor a file", path="--batch", allowed=BATCH_HELP
        )
    return read_batches(read_file(Path(text), "--batch"), text)


def load_gaps(text: str) -> NDArray[np.float64] | None:
    """Return the gaps between the time stamps of a trace, or None where the text names a kind of arrivals.

    Known traces: CSV with a column TIMESTAMP (Azure LLM 2023), JSON lines with ``timestamp`` (Mooncake).

    Raises:
        InputError: With every line that has no time stamp, or if the trace has no two different ones.
    """
    if text in {"poisson", "bursts"}:
        return None
    path = Path(text)
    if not path.exists():
        raise InputError.one(
            "arrivals", f"{text!r} is neither a kind nor a file", path="--arrivals", allowed=ARRIVALS_HELP
        )
    lines = read_file(path, "--arrivals").splitlines()
    stamps = (
        _json_stamps(lines, text) if lines and lines[0].lstrip().startswith("{") else _csv_stamps(lines, text)
    )
    gaps = np.diff(np.sort(np.array(stamps, float)))
    if gaps.size == 0 or gaps.mean() <= 0:
        raise InputError.one("arrivals", "the trace has no two different time stamps", path=text)
    return np.asarray(gaps, np.float64)


def _json_stamps(lines: list[str], path: str) -> list[float]:
    stamps, faults = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            stamps.append(float(json.loads(line)["timestamp"]))
        except (ValueError, KeyError, TypeError):
            faults.append(Fault("arrivals", f"{path}:{number}", "no number `timestamp` in this line"))
    if faults:
        raise InputError(f"{path} is not a trace", faults)
    return stamps


def _csv_stamps(lines: list[str], path: str) -> list[float]:
    rows = list(csv.reader(lines))
    header = [name.strip().lower() for name in rows[0]] if rows else []
    if "timestamp" not in header:
        raise InputError.one("arrivals", "no column TIMESTAMP", path=f"{path}:1")
    column, stamps, faults = header.index("timestamp"), [], []
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        text = row[column] if column < len(row) else ""
        try:
            stamps.append(float(text) if text.replace(".", "", 1).isdigit() else _moment(text))
        except ValueError:
            faults.append(Fault("arrivals", f"{path}:{number}", f"{text!r} is not a time stamp"))
    if faults:
        raise InputError(f"{path} is not a trace", faults)
    return stamps


def _moment(text: str) -> float:
    """Return seconds; fractions longer than Python reads are cut to microseconds."""
    whole, dot, fraction = text.partition(".")
    return (
        datetime.fromisoformat(whole + dot + fraction[:6]).timestamp()
        if dot
        else datetime.fromisoformat(text).timestamp()
    )


def make_request(
    profile: LatencyProfile,
    sku: Sku,
    gpus: int,
    batches: BatchDistribution,
    slo_factor: float | None,
    slo_ms: float | None,
    percentile: float,
    *,
    per_bucket: bool,
    seed: int = 0,
) -> Request:
    """Return the request; the objective is given, or a factor of the largest batch on the largest slice.

    Raises:
        InputError: With everything that is wrong with the numbers.
    """
    faults = []
    if gpus < 1:
        faults.append(Fault("gpus", "--gpus", f"{gpus} GPUs", ">= 1"))
    if not 0 < percentile < 100:
        faults.append(Fault("percentile", "--percentile", f"{percentile:g}", "between 0 and 100"))
    if slo_factor is not None and slo_ms is not None:
        faults.append(Fault("slo", "--slo-ms", "given beside --slo-factor", "one of the two"))
    largest = max(p.gpcs for p in sku.base_profiles)
    slowest = profile.latency_us(largest, batches.largest)
    slo_us = round((slo_ms or 0) * 1e3)
    if slo_ms is None:
        if slowest == INFEASIBLE:
            text = f"batch {batches.largest} of {profile.model} does not run on {largest}g: no factor of it"
            faults.append(Fault("slo", "--slo-factor", text, fix="use --slo-ms, or a smaller max"))
        slo_us = round((1.5 if slo_factor is None else slo_factor) * slowest)
    if not faults and slo_us <= 0:
        faults.append(Fault("slo", "--slo-ms", "the objective is not positive", "> 0"))
    if faults:
        raise InputError("the request has faults", faults)
    return Request(sku, gpus, profile, batches, slo_us, percentile, per_bucket, seed)
