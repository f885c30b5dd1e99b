"""The work of `divvy slices pack`: read a scenario, pack, print."""

from __future__ import annotations

import csv
from pathlib import Path

from divvy.cli.render import Column, Output, Span, number
from divvy.cli.slice_inputs import load_profiles, load_sku, read_file
from divvy.errors import Fault, InputError
from divvy.fleet.mig.emit import draw
from divvy.perf.latency import LatencyProfile
from divvy.planners.slices.pack import Demand
from divvy.sim.queries.packs import pack_document, pack_fleet


def read_scenario(text: str, profiles: dict[str, LatencyProfile], path: str = "") -> list[Demand]:
    """Return the demands in a CSV with the columns model, rate_qps, slo_ms and perhaps percentile.

    Raises:
        InputError: With every fault, each with its line.
    """
    lines = [
        (number, row)
        for number, row in enumerate(csv.reader(text.lstrip("\ufeff").splitlines()), start=1)
        if row and any(cell.strip() for cell in row) and not row[0].startswith("#")
    ]
    if not lines:
        raise InputError.one("scenario-empty", "the scenario is empty", path=path)
    header = [name.strip().lower() for name in lines[0][1]]
    missing = [name for name in ("model", "rate_qps", "slo_ms") if name not in header]
    faults = [Fault("scenario-column", f"{path}:{lines[0][0]}", f"no column {name}") for name in missing]
    demands: list[Demand] = []
    for line, row in lines[1:] if not missing else ():
        cells = dict(zip(header, (cell.strip() for cell in row), strict=False))
        where, before = f"{path}:{line}", len(faults)
        profile = profiles.get(cells.get("model", ""))
        if profile is None:
            fault = f"no profile of model {cells.get('model', '')!r}"
            faults.append(Fault("scenario-model", where, fault, ", ".join(sorted(profiles))))
        elif any(profile.model == demand.model for demand in demands):
            faults.append(Fault("scenario-model", where, f"{profile.model} again"))
        values = [
            _positive(cells, name, default, where, faults)
            for name, default in (("rate_qps", ""), ("slo_ms", ""), ("percentile", "95"))
        ]
        if not 0 < values[2] < 100:
            faults.append(Fault("scenario-number", where, f"percentile {values[2]:g}", "between 0 and 100"))
        if profile is not None and len(faults) == before:
            demands.append(Demand(profile.model, profile, values[0], round(values[1] * 1e3), values[2]))
    if not faults and not demands:
        faults.append(Fault("scenario-empty", path, "no model in this scenario"))
    if faults:
        raise InputError(f"{path or 'the scenario'} has faults", faults)
    return demands


def _positive(cells: dict[str, str], name: str, default: str, where: str, faults: list[Fault]) -> float:
    text = cells.get(name) or default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        faults.append(Fault("scenario-number", where, f"{name} {text!r}", "a number > 0"))
        return 1.0
    return value


def run_pack(
    profile: str, scenario: Path, sku: str, table: Path | None, gpus: int | None, seeds: int, output: Output
) -> None:
    """Pack the models of a scenario, and print the fleet."""
    kind = load_sku(sku, table)
    profiles = {one.model: one for one in load_profiles(profile)}
    demands = read_scenario(read_file(scenario, "--scenario"), profiles, str(scenario))
    fleet = pack_fleet(kind, demands, seeds, gpus)
    document = pack_document(kind, demands, fleet)
    if output.machine(document, [f"{u.gpu}:{u.profile}:{u.start}" for u in fleet.units]):
        return
    screen = output.screen
    screen.line(
        Span(f"{len(fleet.layouts)} x {kind.name}", "bold"),
        f" for {len(demands)} models; at least {fleet.lower_bound} are needed by any serving;"
        f" all rates could grow by a factor of {fleet.headroom:.2f}",
    )
    for gpu, layout in enumerate(fleet.layouts):
        work = ", ".join(
            f"{u.profile}@{u.start} {demands[u.demand].model} b{u.batch} x{u.processes}"
            if u.demand >= 0
            else f"{u.profile}@{u.start} spare"
            for u in fleet.units
            if u.gpu == gpu
        )
        screen.line(f"  gpu {gpu:<3} {draw(kind, layout):<66}  ", Span(work, "dim"))
    columns = [
        Column("model"),
        *(Column(t, right=True) for t in ("queries/s", "objective ms", "reached ms")),
        Column("met"),
    ]
    screen.table(
        columns,
        [
            (
                demand.model,
                number(demand.rate_qps),
                number(demand.slo_us / 1e3),
                number(one.achieved_ms),
                "yes" if one.met else Span("no", "red"),
            )
            for demand, one in zip(demands, fleet.served, strict=True)
        ],
    )
