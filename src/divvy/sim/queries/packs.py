"""Packs several models on one fleet: programs propose, replays decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from divvy.errors import InputError
from divvy.fleet.mig.profile import Layout, Sku
from divvy.perf.traffic import from_weights
from divvy.planners.slices.pack import (
    Configuration,
    Demand,
    Packing,
    configurations,
    lower_bound_gpus,
    pack,
)
from divvy.planners.slices.packing import lay_out
from divvy.sim.queries.arrivals import Stream, make_stream
from divvy.sim.queries.batched import Process, processes_of, serve
from divvy.sim.queries.judge import percentile_us

#: Queries per model and seed.
QUERIES: Final = 20_000
#: The first seed of the confirmation; searches use small numbers.
_FRESH: Final = 1_000
#: What a run may take of its objective at first, and how a model that misses is helped.
_SHARES: Final = (0.55, 0.45, 0.35, 0.25)
_TRIES: Final = 10
#: Fewest GPUs are looked for from the lower bound to twice as many and so many more, and never beyond.
_MORE: Final = 4
MOST_GPUS: Final = 1_000
_HEAVIER: Final = 1.06
#: Headroom on the search seeds with which a packing is taken to the fresh ones.
_ENOUGH: Final = 1.015
_DRAIN: Final = 4
_ONE: Final = from_weights({1: 1.0})


@dataclass(frozen=True, slots=True)
class Served:
    """One model under a replay; `achieved_ms` is the percentile of the worst seed."""

    achieved_ms: float
    met: bool


@dataclass(frozen=True, slots=True)
class Unit:
    """A slice with what runs on it; `demand` is -1 for a slice that is left over."""

    gpu: int
    profile: str
    start: int
    size: int
    demand: int = -1
    batch: int = 0
    processes: int = 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """A packed fleet and its proof.

    Attributes:
        layouts: By GPU.
        units: Every slice.
        served: By demand, on the confirming seeds.
        headroom: Factor on all rates at which every objective still holds.
        lower_bound: GPUs below which nothing can serve this.
        notes: What was tried.
    """

    layouts: tuple[Layout, ...]
    units: tuple[Unit, ...]
    served: tuple[Served, ...]
    headroom: float
    lower_bound: int
    notes: tuple[str, ...]


class PackJudge:
    """Replays demands on slices; each model has its own stream per seed."""

    def __init__(self, demands: Sequence[Demand], queries: int = QUERIES) -> None:
        self.demands = demands
        self.queries = queries
        self._streams: dict[tuple[int, int], Stream] = {}

    def stream(self, index: int, seed: int) -> Stream:
        """Return the stream of a model and a seed."""
        key = (index, seed)
        if key not in self._streams:
            self._streams[key] = make_stream(_ONE, self.queries, seed * 101 + index)
        return self._streams[key]

    def serve(
        self,
        index: int,
        processes: Sequence[Process],
        seeds: Sequence[int],
        scale: float = 1.0,
        *,
        full: bool = False,
    ) -> Served:
        """Return what a model achieves at its rate times `scale`, the worst of the seeds."""
        demand = self.demands[index]
        if not processes:
            return Served(float("inf"), met=False)
        worst, met = 0, True
        for seed in seeds:
            load = self.stream(index, seed).at(demand.rate_qps * scale)
            finish, _ = serve(load.arrivals, processes, full=full)
            reached = percentile_us(finish - load.arrivals, demand.percentile)
            drained = int(finish.max()) - int(load.arrivals[-1]) <= _DRAIN * demand.slo_us
            worst = max(worst, reached)
            met = met and drained and reached <= demand.slo_us
        return Served(worst / 1e3, met)


def processes_by_demand(demands: Sequence[Demand], units: Sequence[Unit]) -> list[list[Process]]:
    """Return the server processes of every model."""
    found: list[list[Process]] = [[] for _ in demands]
    for index, unit in enumerate(units):
        if unit.demand >= 0:
            profile = demands[unit.demand].profile
            found[unit.demand] += processes_of(profile, index, unit.size, unit.processes, unit.batch)
    return found


def place_units(sku: Sku, packing: Packing) -> tuple[tuple[Layout, ...], tuple[Unit, ...]]:
    """Return where every slice lies and what runs on it; slices beyond those chosen stay without a model."""
    layouts = tuple(lay_out(sku, shape) for shape in packing.per_gpu)
    rest: dict[int, list[Configuration]] = {}
    for option, count in packing.slices:
        rest.setdefault(option.size, []).extend([option] * count)
    units = []
    for gpu, layout in enumerate(layouts):
        for placement in layout:
            size = sku.profile(placement.profile).gpcs
            unit = Unit(gpu, placement.profile, placement.start, size)
            if rest.get(size):
                work = rest[size].pop()
                unit = replace(unit, demand=work.demand, batch=work.batch, processes=work.processes)
            units.append(unit)
    return layouts, tuple(units)


def pack_fleet(sku: Sku, demands: Sequence[Demand], seeds: int, gpus: int | None = None) -> Fleet:
    """Return the fewest GPUs on which every objective holds in replay, or the most headroom on `gpus`.

    Where no number of GPUs that was tried holds every objective, the last one tried is returned: its models
    say which.

    Raises:
        InputError: If a demand cannot be met on any slice, or not on `gpus` GPUs, or needs too many.
    """
    judge, low = PackJudge(demands), lower_bound_gpus(sku, demands)
    _refuse_hopeless(sku, demands)
    if low > MOST_GPUS:
        text = f"these rates need at least {low} GPUs"
        raise InputError.one("pack-gpus", text, path="--scenario", allowed=f"what {MOST_GPUS} GPUs can serve")
    search, fresh = tuple(range(seeds)), tuple(_FRESH + i for i in range(seeds))
    notes = [f"no serving needs fewer than {low} GPUs (full batches, no waits)"]

    def attempt(count: int) -> Fleet | None:
        found = _try(sku, demands, judge, count, search, fresh, low, notes, most=gpus is not None)
        if found is None or not _holds(found):
            notes.append(f"{count} GPUs: not every objective held")
        return found

    best = attempt(gpus) if gpus is not None else _fewest(max(low, 1), attempt)
    if best is None:
        text = f"{gpus or low} GPUs cannot carry these rates"
        raise InputError.one("pack-gpus", text, path="--gpus", allowed=f"> {max(gpus or 0, low - 1)}")
    return replace(_with_spare(best, gpus), notes=tuple(notes))


def _holds(fleet: Fleet) -> bool:
    return all(one.met for one in fleet.served)


def _fewest(low: int, attempt: Callable[[int], Fleet | None]) -> Fleet | None:
    """Return the fleet with the fewest GPUs that holds: one by one, then in doubling steps and back."""
    last, missed, count, step = None, low - 1, low, 1
    while count <= min(2 * low + _MORE, MOST_GPUS):
        found = attempt(count)
        last = found or last
        if found is not None and _holds(found):
            break
        missed, step = count, step if count < low + _MORE - 1 else step * 2
        count += step
    while last is not None and _holds(last) and len(last.layouts) - missed > 1:
        middle = (missed + len(last.layouts)) // 2
        found = attempt(middle)
        if found is not None and _holds(found):
            last = found
        else:
            missed = middle
    return last


def _with_spare(fleet: Fleet, gpus: int | None) -> Fleet:
    """Return the fleet with the GPUs that were asked for: those that add no headroom stay uncut."""
    spare = 0 if gpus is None else max(0, gpus - len(fleet.layouts))
    return replace(fleet, layouts=(*fleet.layouts, *((),) * spare)) if spare else fleet


def _refuse_hopeless(sku: Sku, demands: Sequence[Demand]) -> None:
    options = configurations(sku, demands, [1.0] * len(demands))
    missing = sorted(set(range(len(demands))) - {option.demand for option in options})
    if missing:
        names = ", ".join(demands[index].model for index in missing)
        raise InputError.one(
            "pack-slo", f"no slice runs a query of {names} within its objective", path="--scenario"
        )


def _try(
    sku: Sku,
    demands: Sequence[Demand],
    judge: PackJudge,
    gpus: int,
    search: tuple[int, ...],
    fresh: tuple[int, ...],
    low: int,
    notes: list[str],
    *,
    most: bool,
) -> Fleet | None:
    """Return the best packing on a number of GPUs; models that miss get shorter runs, then more capacity.

    With `most` the search goes on for more headroom when every objective holds.
    """
    steps, weights = [0] * len(demands), [1.0] * len(demands)
    best: tuple[tuple[int, float], Packing] | None = None
    for _ in range(_TRIES):
        shares = [_SHARES[min(step, len(_SHARES) - 1)] for step in steps]
        packing = pack(sku, demands, configurations(sku, demands, shares), weights, gpus)
        if packing is None or (packing.headroom < 1 and max(weights) <= 1):
            break  # the rates exceed every capacity, whatever waits
        processes = processes_by_demand(demands, place_units(sku, packing)[1])
        served = [judge.serve(i, processes[i], search[:2]) for i in range(len(demands))]
        missed = [i for i, one in enumerate(served) if not one.met]
        scale = _headroom(judge, processes, search[:1]) if not missed else 0.0
        if best is None or (-len(missed), scale) > best[0]:
            best = (-len(missed), scale), packing
        if not missed and not most and scale >= _ENOUGH:
            break
        if not missed:
            beyond = scale * 1.02
            missed = [
                i for i in range(len(demands)) if not judge.serve(i, processes[i], search[:1], beyond).met
            ]
        for i in missed:
            steps[i] += 1
            weights[i] *= _HEAVIER if steps[i] > 1 else 1.0
    if best is None:
        return None
    layouts, units = place_units(sku, best[1])
    processes = processes_by_demand(demands, units)
    served = [judge.serve(i, processes[i], fresh) for i in range(len(demands))]
    scale = _headroom(judge, processes, fresh)
    notes.append(f"{gpus} GPUs: {sum(one.met for one in served)} of {len(served)} objectives held")
    return Fleet(layouts, units, tuple(served), scale, low, tuple(notes))


def _headroom(judge: PackJudge, processes: Sequence[Sequence[Process]], seeds: tuple[int, ...]) -> float:
    """Return the largest factor on all rates at which every objective holds, to 1%; 0 if there is none."""
    low, high = 0.0, 1.0
    everything = range(len(judge.demands))
    while high < 1e3 and all(judge.serve(i, processes[i], seeds, high).met for i in everything):
        low, high = high, high * 1.5
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        if all(judge.serve(i, processes[i], seeds, middle).met for i in everything):
            low = middle
        else:
            high = middle
        if high < 0.02:
            return 0.0
    return low


def pack_document(sku: Sku, demands: Sequence[Demand], fleet: Fleet) -> dict[str, Any]:
    """Return the document ``divvy.slices.pack/1``."""
    return {
        "schema": "divvy.slices.pack/1",
        "sku": sku.name,
        "gpus": len(fleet.layouts),
        "lower_bound_gpus": fleet.lower_bound,
        "headroom": round(fleet.headroom, 3),
        "layout": [
            {
                "gpu": gpu,
                "slices": [
                    {
                        "profile": unit.profile,
                        "start": unit.start,
                        "model": demands[unit.demand].model if unit.demand >= 0 else None,
                        "batch": unit.batch if unit.demand >= 0 else None,
                        "processes": unit.processes if unit.demand >= 0 else None,
                    }
                    for unit in fleet.units
                    if unit.gpu == gpu
                ],
            }
            for gpu in range(len(fleet.layouts))
        ],
        "models": [
            {
                "model": demand.model,
                "rate_qps": demand.rate_qps,
                "slo_ms": demand.slo_us / 1e3,
                "percentile": demand.percentile,
                "achieved_ms": round(one.achieved_ms, 3),
                "met": one.met,
            }
            for demand, one in zip(demands, fleet.served, strict=True)
        ],
        "explanation": list(fleet.notes),
    }
