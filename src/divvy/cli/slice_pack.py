"""The work of `divvy slices pack`: read a scenario, pack, print."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from divvy.cli.chatter import libraries_quiet
from divvy.cli.render import Column, Output, Span, number
from divvy.cli.slice_inputs import LONGEST_MS, load_profiles, load_sku, read_file
from divvy.errors import Fault, InputError
from divvy.fleet.mig.emit import draw
from divvy.perf.latency import LatencyProfile
from divvy.perf.tables import as_records, read_rows
from divvy.planners.slices.pack import Demand
from divvy.sim.queries.packs import pack_document, pack_fleet
from divvy.units import parse_float

#: The first three are needed.
_COLUMNS: Final = ("model", "rate_qps", "slo_ms", "percentile")
#: A query in a quarter of an hour, and what no fleet serves.
_QPS: Final = (1e-3, 1e9)
_PERCENT: Final = (0.001, 99.999)


def read_scenario(text: str, profiles: dict[str, LatencyProfile], path: str = "") -> list[Demand]:
    """Return the demands in a CSV with the columns model, rate_qps, slo_ms and perhaps percentile.

    Raises:
        InputError: With every fault, each with its line.
    """
    rows, faults = read_rows(text, path, "scenario-row")
    if not rows and not faults:
        raise InputError.one("scenario-empty", "the scenario is empty", path=path)
    header = [cell.lower() for cell in rows[0].cells] if rows else []
    faults += [
        Fault("scenario-column", f"{path}:{rows[0].line}", f"{header.count(name)} columns {name}", "one")
        for name in _COLUMNS
        if rows and header.count(name) != 1 and (name in _COLUMNS[:3] or header.count(name) > 1)
    ]
    demands: list[Demand] = []
    for where, cells in as_records(rows[1:], header, path, "scenario-row", faults) if not faults else ():
        before, profile = len(faults), profiles.get(cells["model"])
        if profile is None:
            fault = f"no profile of model {cells['model']!r}"
            faults.append(Fault("scenario-model", where, fault, ", ".join(sorted(profiles))))
        elif any(profile.model == demand.model for demand in demands):
            faults.append(Fault("scenario-model", where, f"{profile.model} again"))
        rate, slo_ms, percentile = (
            _positive(cells, name, default, span, where, faults)
            for name, default, span in (
                ("rate_qps", "", _QPS),
                ("slo_ms", "", (0.001, LONGEST_MS)),
                ("percentile", "95", _PERCENT),
            )
        )
        if profile is not None and len(faults) == before:
            demands.append(Demand(profile.model, profile, rate, max(1, round(slo_ms * 1e3)), percentile))
    if not faults and not demands:
        faults.append(Fault("scenario-empty", path, "no model in this scenario"))
    if faults:
        raise InputError(f"{path or 'the scenario'} has faults", faults)
    return demands


def _positive(
    cells: dict[str, str],
    name: str,
    default: str,
    span: tuple[float, float],
    where: str,
    faults: list[Fault],
) -> float:
    text = cells.get(name) or default
    try:
        value = parse_float(text)
    except ValueError:
        value = -1.0
    if not span[0] <= value <= span[1]:
        allowed = f"a number of {span[0]:g} to {span[1]:g}"
        faults.append(Fault("scenario-number", where, f"{name} {text!r}", allowed))
        return 1.0
    return value


def run_pack(
    profile: str, scenario: Path, sku: str, table: Path | None, gpus: int | None, seeds: int, output: Output
) -> None:
    """Pack the models of a scenario, and print the fleet."""
    kind = load_sku(sku, table)
    profiles = {one.model: one for one in load_profiles(profile)}
    demands = read_scenario(read_file(scenario, "--scenario"), profiles, str(scenario))
    with libraries_quiet():
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
