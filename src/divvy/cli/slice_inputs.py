"""What the verbs of `divvy slices` read: SKUs, profiles, batch distributions, objectives, traces."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from divvy.adapters.mig.nvml import open_nvml
from divvy.adapters.mig.port import Driver
from divvy.adapters.mig.smi import SmiDriver
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
from divvy.sim.queries.arrivals import KINDS
from divvy.sim.queries.stamps import read_gaps

DEFAULT_BATCH: Final = "lognormal:median=4,sigma=0.9,max=32"
_FITTED: Final = "fitted:"
#: What `--table` asks at run time instead of reading a file.
_LIVE: Final[Mapping[str, Callable[[], Driver]]] = {"smi": SmiDriver, "nvml": open_nvml}
_SHOWN: Final = 200
_MOST_BYTES: Final = 1 << 28
#: An objective beyond this (ten days) is a wrong unit, and would not fit the arithmetic of the replay.
LONGEST_MS: Final = 864e6


def read_file(path: Path, option: str) -> str:
    """Return a file's text.

    Raises:
        NotFoundError: If there is no such file.
        InputError: If it cannot be read as text.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES >> 20} MiB")  # noqa: TRY301 - all that is unreadable
        return data.decode("utf-8")
    except FileNotFoundError as error:
        raise NotFoundError.one("no-file", f"no file {str(path)[:_SHOWN]}", path=option) from error
    except (OSError, ValueError) as error:  # ValueError: bytes that are no text, a name that cannot be one
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        what = f"{str(path)[:_SHOWN]!r}: {why}"
        raise InputError.one("unreadable", what, path=option, allowed="UTF-8 text") from error


def load_sku(name: str, table: Path | None = None) -> Sku:
    """Return a SKU by name, or learned: from a file, or from the driver of this machine.

    Args:
        name: Name of the SKU; what a learned one is called.
        table: File with the output of ``-lgip`` and ``-lgipp``; ``smi`` or ``nvml``: this machine's GPU 0.
    """
    if table is None:
        return find_sku(name)
    if str(table) in _LIVE:
        return replace(_LIVE[str(table)]().sku(0), name=name)
    return read_table(read_file(table, "--table"), name, str(table))


def load_profile(text: str) -> LatencyProfile:
    """Return the profile in a CSV file, or a fitted one (``fitted:resnet50``)."""
    if text.startswith(_FITTED):
        return fitted_profile(text.removeprefix(_FITTED))
    path = Path(text)
    if not text or (_is_there(text) and path.is_dir()):
        raise InputError.one(
            "profile-directory", f"{text!r} is not a file", path="--profile", fix="name one CSV file in it"
        )
    return read_profile(read_file(path, "--profile"), path.stem, str(path))


def load_profiles(text: str) -> list[LatencyProfile]:
    """Return the profiles of a directory (every CSV file that is one), of one file, or all fitted ones.

    Raises:
        InputError: If a file is damaged, or there is none; with the faults of all files.
    """
    if text == _FITTED.removesuffix(":"):
        return [fitted_profile(name) for name in fitted_models()]
    if not _is_there(text) or not Path(text).is_dir():
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
    if not _is_there(text):
        raise InputError.one(
            "batch-text", f"{text!r} is neither a distribution nor a file", path="--batch", allowed=BATCH_HELP
        )
    return read_batches(read_file(Path(text), "--batch"), text)


def load_gaps(text: str) -> NDArray[np.float64] | None:
    """Return the gaps between the time stamps of a trace, or None where the text names a kind of arrivals.

    Raises:
        InputError: If there is no such kind or file, or the file is not a trace.
    """
    if text in KINDS:
        return None
    if not _is_there(text):
        raise InputError.one(
            "arrivals", f"{text!r} is neither a kind nor a file", path="--arrivals", allowed=ARRIVALS_HELP
        )
    return read_gaps(read_file(Path(text), "--arrivals"), text)


def _is_there(text: str) -> bool:
    """Return whether a text names something in the file system; what cannot be a name does not."""
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):
        return False


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
    objective_ms, source = slo_ms, "--slo-ms"
    if objective_ms is None:
        largest = max(p.gpcs for p in sku.base_profiles)
        slowest = profile.latency_us(largest, batches.largest)
        if slowest == INFEASIBLE:
            text = f"batch {batches.largest} of {profile.model} does not run on {largest}g: no factor of it"
            faults.append(Fault("slo", "--slo-factor", text, fix="use --slo-ms, or a smaller max"))
            slowest = 1_000
        objective_ms, source = (1.5 if slo_factor is None else slo_factor) * slowest / 1e3, "--slo-factor"
    slo_us = round(objective_ms * 1e3) if math.isfinite(objective_ms) else 0
    if not faults and not 1 <= slo_us <= LONGEST_MS * 1e3:
        allowed = f"0.001 to {LONGEST_MS:g} ms"
        faults.append(Fault("slo", source, f"an objective of {objective_ms:g} ms", allowed))
    if faults:
        raise InputError("the request has faults", faults)
    return Request(sku, gpus, profile, batches, slo_us, percentile, per_bucket, seed)
