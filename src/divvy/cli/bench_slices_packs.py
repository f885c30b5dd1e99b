"""ParvaGPU's six scenarios: its published deployments and the house's packing under one replay."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from divvy.cli.bench_row import row
from divvy.errors import InputError
from divvy.fleet.mig.layout import place
from divvy.fleet.mig.skus import find_sku
from divvy.perf.latency import LatencyProfile
from divvy.perf.profile_csv import read_profile
from divvy.planners.slices.pack import Demand
from divvy.sim.queries.packs import PackJudge, Unit, pack_fleet, processes_by_demand

Row = dict[str, Any]

_SEEDS: Final = (1_000, 1_001, 1_002, 1_003, 1_004)
_HOST: Final = 8


def read_cells(path: Path) -> list[list[str]]:
    """Return the cells of a CSV without a header."""
    return [[cell.strip() for cell in row] for row in csv.reader(path.read_text().splitlines()) if row]


def read_scenario_row(
    directory: Path, profiles: dict[str, LatencyProfile], index: int, percentile: float = 95.0
) -> list[Demand]:
    """Return the demands of scenario S`index`; the columns are the models in alphabetical order."""
    latencies = read_cells(directory / "SLO" / "SLO_latency.csv")[index - 1]
    rates = read_cells(directory / "SLO" / "SLO_req_rate.csv")[index - 1]
    return [
        Demand(name, profiles[name], float(rate), round(float(latency) * 1e3), percentile)
        for name, latency, rate in zip(sorted(profiles), latencies, rates, strict=True)
        if latency != "N/A"
    ]


def read_deployment(directory: Path, demands: Sequence[Demand], index: int) -> list[Unit]:
    """Return the slices that ParvaGPU deployed in scenario S`index`.

    Raises:
        InputError: If it deploys other models than the scenario has: then columns are not alphabetical.
    """
    path = directory / "deployment" / f"SLO{index}" / f"SLO{index}_ParvaGPU_deploy.csv"
    known = {demand.model: i for i, demand in enumerate(demands)}
    units = []
    for one in csv.DictReader(path.read_text().splitlines()):
        if one["Model"] not in known:
            raise InputError.one("parvagpu-columns", f"S{index} deploys {one['Model']}, which has no rate")
        gpu = int(one["Num instance"]) * _HOST + int(one["Num GPU"])
        size, batch, processes = (int(one[key]) for key in ("Instance size", "Batch size", "Num proc"))
        units.append(
            Unit(gpu, f"{size}g", int(one["Placement"]), size, known[one["Model"]], batch, processes)
        )
    if {unit.demand for unit in units} != set(range(len(demands))):
        raise InputError.one("parvagpu-columns", f"S{index} has a rate for a model that is not deployed")
    return units


def illegal_gpus(units: Sequence[Unit]) -> int:
    """Return on how many GPUs the deployed sizes have no legal placement at all."""
    sku, count = find_sku("A100-80GB"), 0
    for gpu in {unit.gpu for unit in units}:
        sizes = [unit.size for unit in units if unit.gpu == gpu]
        wanted = {sku.by_gpcs(size).name: sizes.count(size) for size in set(sizes)}
        count += place(sku, wanted) is None
    return count


def pack_rows(directory: Path, *, quick: bool, announce: Callable[[str], None]) -> Iterator[Row]:
    """Yield GPUs used and objectives missed, scenario by scenario."""
    profiles = {
        path.stem: read_profile(path.read_text(encoding="utf-8"), path.stem, str(path))
        for path in sorted(directory.glob("*.csv"))
    }
    seeds = _SEEDS[:1] if quick else _SEEDS
    for index in range(1, 7):
        announce(f"ParvaGPU's scenario S{index}")
        demands = read_scenario_row(directory, profiles, index)
        units = read_deployment(directory, demands, index)
        judge, processes = PackJudge(demands), processes_by_demand(demands, units)
        theirs = len({unit.gpu for unit in units})
        case = f"ParvaGPU S{index}, {len(demands)} models"
        for full, how in ((False, "as the house batches"), (True, "fixed batches, as published")):
            served = [judge.serve(i, processes[i], seeds, full=full) for i in range(len(demands))]
            missed = [
                f"{demand.model} {one.achieved_ms:.0f} of {demand.slo_us / 1e3:g} ms"
                for demand, one in zip(demands, served, strict=True)
                if not one.met
            ]
            note = "; ".join(missed) or "all objectives held"
            yield row(
                case, f"ParvaGPU, {how}", "objectives missed", len(missed), "models", n=len(seeds), note=note
            )
        illegal = illegal_gpus(units)
        note = f"{illegal} GPUs have no legal placement" if illegal else "every GPU's sizes can be placed"
        yield row(case, "ParvaGPU", "GPUs", theirs, "GPUs", note=note)
        fleet = pack_fleet(find_sku("A100-80GB"), demands, len(seeds))
        mine, bad = len(fleet.layouts), sum(not one.met for one in fleet.served)
        yield row(
            case,
            "divvy",
            "GPUs",
            mine,
            "GPUs",
            n=len(seeds),
            target=theirs,
            met=mine <= theirs and bad == 0,
            note=f"p95; lower bound {fleet.lower_bound} GPUs, headroom {fleet.headroom:.2f}",
        )
        yield row(case, "divvy", "objectives missed", bad, "models", n=len(seeds), target=0, met=bad == 0)
