"""Scenario files: a fleet file with a training trace and the traffic of its services."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from divvy.cli.fleet_file import FleetFile, read_fleet
from divvy.cli.one_means import curve_of, roads_of
from divvy.cli.slice_inputs import load_gaps
from divvy.errors import Fault, InputError
from divvy.sim.accounts import claim
from divvy.sim.experiment import part_of
from divvy.sim.queries.curves import Rater
from divvy.sim.scenario import Scenario
from divvy.sim.synthetic import synthetic_trace
from divvy.sim.traces import AUTO, read_trace
from divvy.sim.traces.trace import Trace
from divvy.sim.whole.arrange import Whole
from divvy.sim.whole.compare import Tools
from divvy.sim.whole.traffic import NOISE, SWING, Traffic, shape_of
from divvy.units import DAY, MINUTE, parse_duration

_SECTIONS: Final = ("training", "traffic", "replay")
_KEYS: Final = {
    "training": ("trace", "every", "first_day"),
    "traffic": ("epoch", "swing", "noise", "arrivals"),
    "replay": ("days", "warmup", "seeds"),
}
_MOST_DAYS: Final = 400


@dataclass(frozen=True)
class Plan:
    """What is replayed, and with how many seeds."""

    tools: Tools
    seeds: int


@dataclass(frozen=True)
class _Numbers:
    every: int
    first_day: float
    epoch: int
    swing: float
    noise: float
    days: float
    warmup: int
    seeds: int


def read_scenario(path: Path, told: Callable[[str], None] = lambda _: None) -> Plan:
    """Return a scenario file, its curves measured or read from the cache.

    Raises:
        InputError: With every fault of the file.
    """
    file = read_fleet(path, "FILE", _SECTIONS)
    faults: list[Fault] = []
    tables = {name: _table(file.document, name, path.name, faults) for name in _SECTIONS}
    numbers = _numbers(tables, path.name, faults)
    if file.wish.jobs:
        faults.append(
            Fault("scenario-jobs", f"{path.name}.jobs", "jobs come from the trace", fix="remove them")
        )
    if not file.wish.tenants.services:
        faults.append(
            Fault("scenario-services", f"{path.name}.services", "none", "at least one [[services]]")
        )
    if faults:
        raise InputError(f"{path.name} has {len(faults)} fault{'s' if len(faults) > 1 else ''}", faults)
    arrivals = tables["traffic"].get("arrivals", "")
    gaps = load_gaps(str(path.parent / str(arrivals))) if arrivals else None
    traffic = Traffic(numbers.epoch, numbers.swing, numbers.noise, () if gaps is None else shape_of(gaps))
    until = numbers.warmup + round(numbers.days * DAY)
    trace = _trace(file, tables["training"], path, numbers, until)
    return Plan(tools_of(file, trace, traffic, until, numbers.warmup, told), numbers.seeds)


def tools_of(
    file: FleetFile,
    trace: Trace,
    traffic: Traffic,
    until: int,
    warmup: int,
    told: Callable[[str], None] = lambda _: None,
) -> Tools:
    """Return what a comparison needs, for a fleet file and a trace of which the days are already taken."""
    budget, claims = claim(trace, file.wish.budget)
    tenants = file.wish.tenants
    curves = {one.name: curve_of(one, file.slices, file.dispatcher, told) for one in tenants.services}
    paris = {one.name: curve_of(one, "paris", "elsa", told) for one in tenants.services}
    whole = Whole(
        Scenario(trace, file.wish.nodes, budget, claims, until=until),
        tenants,
        curves,
        traffic,
        until,
        warmup,
    )
    ways = roads_of(file.wish.nodes, file.topology) if tenants.pairings else None
    return Tools(whole, {name: Rater(curve) for name, curve in curves.items()}, paris, ways, file.planner)


def _trace(file: FleetFile, table: Mapping[str, Any], path: Path, numbers: _Numbers, until: int) -> Trace:
    """Return the training jobs of the days that are replayed."""
    name = str(table.get("trace", "synthetic"))
    if name == "synthetic":
        trace = synthetic_trace(sum(node.gpus for node in file.wish.nodes))
    else:
        place = path.parent / name
        if not place.is_file():
            raise InputError.one("no-file", f"no file {place}", path=f"{path.name}.training.trace")
        trace = read_trace(place.read_bytes(), AUTO, place.name)
    return thinned(part_of(trace, (numbers.first_day, numbers.first_day + until / DAY)), numbers.every)


def thinned(trace: Trace, every: int) -> Trace:
    """Return every so manieth job of a trace, on a clock that begins with the first of them."""
    jobs = trace.jobs[::every]
    if not jobs:
        raise InputError.one("trace-empty", "no job of the trace is in these days", path="training")
    first = jobs[0].submit
    return replace(trace, jobs=tuple(job._replace(submit=job.submit - first) for job in jobs))


def _table(document: Mapping[str, Any], name: str, source: str, faults: list[Fault]) -> Mapping[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, Mapping):
        faults.append(Fault("fleet-type", f"{source}.{name}", "not a table", f"[{name}]"))
        return {}
    faults += [
        Fault("fleet-key", f"{source}.{name}.{key}", "unknown setting", ", ".join(_KEYS[name]))
        for key in table
        if key not in _KEYS[name]
    ]
    return table


def _numbers(tables: Mapping[str, Mapping[str, Any]], source: str, faults: list[Fault]) -> _Numbers:
    def number(section: str, key: str, default: float, low: float, high: float) -> float:
        value = tables[section].get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            faults.append(
                Fault("scenario-value", f"{source}.{section}.{key}", repr(value), f"{low:g} to {high:g}")
            )
            return default
        return float(value)

    def span(section: str, key: str, default: int, least: int) -> int:
        value = tables[section].get(key)
        if value is None:
            return default
        try:
            found = parse_duration(value) if isinstance(value, str) else -1
        except ValueError:
            found = -1
        if found < least:
            allowed = 'a duration such as "15m"'
            faults.append(Fault("scenario-value", f"{source}.{section}.{key}", repr(value), allowed))
            return default
        return found

    return _Numbers(
        int(number("training", "every", 1, 1, 1_000)),
        number("training", "first_day", 0, 0, 36_500),
        span("traffic", "epoch", 15 * MINUTE, MINUTE),
        number("traffic", "swing", SWING, 0, 1),
        number("traffic", "noise", NOISE, 0, 3),
        number("replay", "days", 3, 0.01, _MOST_DAYS),
        span("replay", "warmup", DAY, 0),
        int(number("replay", "seeds", 3, 1, 100)),
    )
