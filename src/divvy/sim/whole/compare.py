"""One plan beside tools that do not know of each other: the same work, seed by seed, on the same GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from divvy.fleet.mig.profile import Layout
from divvy.fleet.tenant import Service
from divvy.planners.jobs.registry import create
from divvy.planners.slices.capacity import Curve
from divvy.planners.slices.tenancy import Rated
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.roads import Roads
from divvy.sim.intervals import interval
from divvy.sim.measures import Window, measure
from divvy.sim.replay import Replay, replay
from divvy.sim.steps import Steps, ints
from divvy.sim.whole.arrange import LeaseEnds, Whole, apart, fixed_parts, is_lease, together
from divvy.sim.whole.moving import moved
from divvy.sim.whole.serving import attained
from divvy.sim.whole.timeline import Stay, pieces, stays
from divvy.units import HOUR, gpu_hours

SCHEMA: Final = "divvy.scenario/1"
ONE: Final = "one plan"


@dataclass(frozen=True, slots=True)
class Apart:
    """Tools that do not know of each other.

    Attributes:
        part: Quantile of the rates that the fixed part is sized for; 1 is the peak.
        own: Whether slices are planned and served by the own planner.
        all_own: Whether jobs and caches are, too, so that only the plan differs.
    """

    part: float
    own: bool = False
    all_own: bool = False


APART: Final = {
    "apart, peak": Apart(1.0),
    "apart, median": Apart(0.5),
    "apart, peak, own slices": Apart(1.0, own=True),
    "apart, peak, own tools": Apart(1.0, own=True, all_own=True),
}
_SAMPLES: Final = 24


@dataclass(frozen=True)
class Tools:
    """What the comparison needs besides the scenario.

    Attributes:
        whole: The scenario.
        rated: Per service, rates of slices under the own planner's rule.
        paris: Per service, curves of PARIS under ELSA.
        ways: Roads of the fleet; None where nothing is paired.
        planner: Planner of jobs of the one plan.
        rival: Planner of jobs of the tools apart.
    """

    whole: Whole
    rated: Mapping[str, Rated]
    paris: Mapping[str, Curve]
    ways: Roads | None
    planner: str = "budget"
    rival: str = "fairshare"


def compare(
    tools: Tools, seeds: Sequence[int], told: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Return ``divvy.scenario/1``: figures of every arrangement, and paired differences to one plan."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in (ONE, *APART)}
    parts: dict[str, dict[str, int]] = {}
    for seed in seeds:
        told(f"seed {seed}: {ONE}")
        found[ONE].append(_one(tools, seed))
        for name, way in APART.items():
            told(f"seed {seed}: {name}")
            curves = tools.whole.curves if way.own else tools.paris
            parts[name] = fixed_parts(tools.whole, curves, tools.whole.rates(seed), way.part)
            found[name].append(_apart(tools, seed, parts[name], curves, all_own=way.all_own))
    return {
        "schema": SCHEMA,
        **_describe(tools.whole, seeds),
        "arrangements": [
            {
                "name": name,
                "fixed_gpus": parts.get(name),
                "figures": _mean(runs),
                "runs": [{"seed": seed, **_plain(run)} for seed, run in zip(seeds, runs, strict=True)],
            }
            for name, runs in found.items()
        ],
        "paired": [row for name in APART for row in _paired(name, found[name], found[ONE])],
    }


def _one(tools: Tools, seed: int) -> dict[str, float]:
    whole = tools.whole
    by_service = whole.rates(seed)
    wanted = whole.wanted(by_service)
    lot = together(whole, seed, wanted)
    run = replay(lot.scenario, create(tools.planner), seed, workload=lot.workload, asker=LeaseEnds(lot.ends))
    held = stays(run)
    figures = _figures(tools, run, held, seed, own=True)
    for service in whole.tenants.services:
        curve, rates = whole.curves[service.name], by_service[service.name]
        some, cuts = pieces(
            held.get(service.mark, []),
            curve,
            tools.rated[service.name],
            rates,
            whole.traffic.epoch,
            whole.until,
        )
        got = attained(curve.request, some, whole.warmup, seed)
        figures |= _served(service, got.in_time, got.kept, got.dark, got.queries)
        figures[f"services.{service.name}.cuts"] = float(cuts)
    return _with_totals(figures, whole)


def _apart(
    tools: Tools, seed: int, parts: Mapping[str, int], curves: Mapping[str, Curve], *, all_own: bool
) -> dict[str, float]:
    whole = tools.whole
    by_service = whole.rates(seed)
    lot = apart(whole, seed, parts)
    jobs = create(tools.planner if all_own else tools.rival)
    run = replay(lot.scenario, jobs, seed, workload=lot.workload)
    held = stays(run)
    figures = _figures(tools, run, held, seed, own=all_own)
    for service in whole.tenants.services:
        curve = curves[service.name]
        count = parts[service.name]
        fixed: dict[str, Layout] = dict(enumerate_layouts(curve, count))
        some, _ = pieces(
            [],
            curve,
            tools.rated[service.name],
            by_service[service.name],
            whole.traffic.epoch,
            whole.until,
            fixed,
            curve.dispatcher(count),
        )
        got = attained(curve.request, some, whole.warmup, seed)
        figures |= _served(service, got.in_time, got.kept, got.dark, got.queries)
        figures[f"services.{service.name}.cuts"] = 0.0
    return _with_totals(figures, whole)


def enumerate_layouts(curve: Curve, count: int) -> list[tuple[str, Layout]]:
    """Return the layouts of a number of GPUs under names of their own."""
    return [(str(place), layout) for place, layout in enumerate(curve.layouts(count))]


def _served(service: Service, in_time: float, kept: float, dark: float, queries: float) -> dict[str, float]:
    at = f"services.{service.name}"
    return {
        f"{at}.in_time": in_time,
        f"{at}.objective_held": kept,
        f"{at}.dark": dark,
        f"{at}.queries": queries,
    }


def _with_totals(figures: dict[str, float], whole: Whole) -> dict[str, float]:
    """Return the figures with those of all services together, weighted by queries and by nothing."""
    names = [one.name for one in whole.tenants.services]
    total = sum(figures[f"services.{name}.queries"] for name in names)
    weighted = sum(
        figures[f"services.{name}.queries"] * figures[f"services.{name}.in_time"] for name in names
    )
    figures["services.in_time"] = weighted / total if total else math.nan
    held = [figures[f"services.{name}.objective_held"] for name in names]
    figures["services.objective_held"] = fmean(held) if held else math.nan
    figures["services.worst_in_time"] = min(
        (figures[f"services.{name}.in_time"] for name in names), default=math.nan
    )
    return figures


def _figures(
    tools: Tools, run: Replay, held: Mapping[str, Sequence[Stay]], seed: int, *, own: bool
) -> dict[str, float]:
    """Return what training and transfers come to."""
    whole = tools.whole
    window = Window(whole.warmup, whole.until)
    serving = {one.account for one in whole.tenants.services}
    figures = measure(run, window)
    accounts = [one for one in figures.accounts if one.account not in serving and one.owed]
    owed = sum(one.owed for one in accounts)
    training = _useful(run, window)
    leases = sum(
        max(min(stay.end, window.end) - max(stay.begin, window.start), 0)
        for some in held.values()
        for stay in some
    )
    out = {
        "occupancy": figures.occupancy,
        "training.useful_gpu_hours": training,
        "training.delivered_over_owed": sum(one.hour * one.owed for one in accounts) / owed
        if owed
        else math.nan,
        "training.delivered_over_owed_period": sum(one.period * one.owed for one in accounts) / owed
        if owed
        else math.nan,
        "training.worst_account": min(
            (one.period for one in accounts if one.owed >= _MATTERS), default=math.nan
        ),
        "training.finished": float(_finished(run, window)),
        "training.lost_fraction": _lost(run, window),
        "services.held_gpu_hours": gpu_hours(leases),
        "preemptions": float(figures.preemptions),
        "refused": float(len(run.refused)),
    }
    return out | _transfers(tools, held, window, seed, own=own)


_MATTERS: Final = 20.0


def _useful(run: Replay, window: Window, *, whole: bool = False) -> float:
    """Return the GPU-hours of training in a window: useful ones, or all that were held."""
    record, spec = run.record, run.workload.spec
    rows = [n for n, job in enumerate(record.job) if not is_lease(spec[job])]
    start = ints([record.start[n] + (0 if whole else record.restore[n]) for n in rows])
    end = ints([record.end[n] - (0 if whole else record.lost[n]) for n in rows])
    gpus = ints([spec[record.job[n]].gpus for n in rows])
    span = ints([window.start, window.end])
    return gpu_hours(int(Steps.of_intervals(start, end, gpus).between(span)[0])) if rows else 0.0


def _lost(run: Replay, window: Window) -> float:
    """Return the part of what training held that was thrown away or spent on restoring."""
    held = _useful(run, window, whole=True)
    return (held - _useful(run, window)) / held if held else 0.0


def _finished(run: Replay, window: Window) -> int:
    spec = run.workload.spec
    return sum(
        window.start <= over < window.end and not is_lease(spec[row])
        for row, over in enumerate(run.record.over)
    )


def _transfers(
    tools: Tools, held: Mapping[str, Sequence[Stay]], window: Window, seed: int, *, own: bool
) -> dict[str, float]:
    if tools.ways is None:
        return {}
    step = max((window.end - window.start) // _SAMPLES, HOUR // 60)
    moments = range(window.start + step // 2, window.end, step)
    finder = Finder(tools.ways)
    out: dict[str, float] = {}
    for one in tools.whole.tenants.pairings:
        got = moved(tools.ways, finder, one, held, moments, seed, own=own)
        at = f"transfers.{one.prefill}-{one.decode}"
        out |= {
            f"{at}.mean_ms": got.mean_s * 1e3,
            f"{at}.p95_ms": got.p95_s * 1e3,
            f"{at}.last_ms": got.last_s * 1e3,
            f"{at}.blind": got.blind / len(moments),
        }
    return out


def _mean(runs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    return {
        name: {
            "value": _number(fmean(run[name] for run in runs)),
            "interval": [_number(edge) for edge in interval([run[name] for run in runs])],
        }
        for name in runs[0]
    }


def _paired(
    name: str, others: Sequence[Mapping[str, float]], ones: Sequence[Mapping[str, float]]
) -> list[dict[str, Any]]:
    rows = []
    for measured in ones[0]:
        gaps = [one[measured] - other[measured] for one, other in zip(ones, others, strict=True)]
        rows.append(
            {
                "against": name,
                "measure": measured,
                "difference": _number(fmean(gaps)),
                "interval": [_number(edge) for edge in interval(gaps)],
                "n": len(gaps),
            }
        )
    return rows


def _plain(run: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _number(value) for name, value in run.items()}


def _number(value: float) -> float | None:
    """Return a figure as JSON can hold it: None where there is none."""
    return round(value, 6) if math.isfinite(value) else None


def _describe(whole: Whole, seeds: Sequence[int]) -> dict[str, Any]:
    tree = whole.scenario.budget.tree
    return {
        "fleet": {"gpus": whole.scenario.gpus, "nodes": len(whole.scenario.nodes)},
        "training_jobs": len(whole.scenario.trace.jobs),
        "services": [
            {
                "name": s.name,
                "mean_qps": s.rate_qps,
                "slo_ms": s.slo_us / 1e3,
                "most": s.most,
                "account": s.account,
            }
            for s in whole.tenants.services
        ],
        "pairings": [
            {"prefill": p.prefill, "decode": p.decode, "kv_bytes": p.kv_bytes} for p in whole.tenants.pairings
        ],
        "shares": {tree.paths[leaf]: float(tree.share[leaf]) for leaf in tree.leaves},
        "window_hours": [whole.warmup / HOUR, whole.until / HOUR],
        "epoch_seconds": whole.traffic.epoch / 1000,
        "seeds": list(seeds),
    }
