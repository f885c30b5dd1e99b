"""Compare policies: every policy meets the same workloads, seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from divvy.planners.jobs.registry import create
from divvy.sim.foresight.watch import Watch, Watcher
from divvy.sim.measures import Window, measure, window_of
from divvy.sim.reclaim import reclaimed
from divvy.sim.replay import Replay, replay
from divvy.sim.report import SCHEMA, Outcome, paired, policies
from divvy.sim.scenario import Scenario
from divvy.sim.traces.trace import rows_of
from divvy.units import DAY, SECOND, gpu_hours

_LISTED: Final = 100


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared.

    Attributes:
        scenario: Workload, fleet, accounts.
        policies: Names of planners; differences are taken to the first.
        seeds: Seeds of the workload.
        warmup: What counts for nothing at the beginning, ms.
        reclaim: Whether the figures of the reclaim scenario are wanted.
        watch: How start intervals are measured; None: not at all, since it takes much longer than a replay.
    """

    scenario: Scenario
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    warmup: int
    reclaim: bool = False
    watch: Watch | None = None


def compare(
    comparison: Comparison,
    stopwatch: Callable[[], float],
    on_progress: Callable[[str, int, int, int], None] | None = None,
    on_replay: Callable[[Replay], None] | None = None,
) -> dict[str, Any]:
    """Replay every policy with every seed and return the report.

    Args:
        comparison: What to compare.
        stopwatch: Returns seconds of any clock; pure rooms have none of their own.
        on_progress: Told the policy, the seed, and how many jobs of how many are over.
        on_replay: Receives every finished replay, before the next begins.

    Raises:
        DivvyError: If a policy does not exist or nothing is left after the warm-up.
    """
    for policy in comparison.policies:
        create(policy)
    outcomes: list[Outcome] = []
    windows: list[Window] = []
    for seed in comparison.seeds:
        workload = comparison.scenario.workload(seed)
        for policy in comparison.policies:
            told = None if on_progress is None else partial(on_progress, policy, seed)
            begin = stopwatch()
            watcher = _watcher(comparison, policy, seed)
            run = replay(comparison.scenario, create(policy), seed, told, workload, watcher)
            window = window_of(comparison.scenario.trace.last_submission, run.end, comparison.warmup)
            figures = measure(run, window)
            extra: dict[str, Mapping[str, Any]] = {}
            if comparison.reclaim:
                extra["reclaim"] = reclaimed(run)
            if watcher is not None:
                extra["start_interval"] = watcher.judge(run.record)
            wall = stopwatch() - begin
            outcomes.append(Outcome(policy, seed, figures, wall, extra, run.refused))
            windows.append(window)
            if on_replay is not None:
                on_replay(run)
    outcomes.sort(key=lambda outcome: comparison.policies.index(outcome.policy))
    return {
        "schema": SCHEMA,
        **_describe(comparison),
        "window_seconds": [windows[0].start / SECOND, max(window.end for window in windows) / SECOND],
        "policies": policies(outcomes),
        "paired": paired(outcomes),
    }


def _watcher(comparison: Comparison, policy: str, seed: int) -> Watcher | None:
    """Return who asks for start intervals in a replay, from the end of the warm-up to the last submission."""
    last = comparison.scenario.trace.last_submission
    if comparison.watch is None or last <= comparison.warmup:
        return None
    return Watcher(comparison.watch, Window(comparison.warmup, last), partial(create, policy), seed)


def _describe(comparison: Comparison) -> dict[str, Any]:
    """Return what was compared, for the head of the report."""
    scenario = comparison.scenario
    trace, tree = scenario.trace, scenario.budget.tree
    demand = trace.gpu_time()
    supply = trace.last_submission * scenario.gpus
    rules = {scenario.contracts.default.declare, *(r.declare for r in scenario.contracts.accounts.values())}
    return {
        "trace": {
            "jobs": len(trace.jobs),
            "first_submission": trace.origin,
            "days": trace.last_submission / DAY,
            "gpu_hours": gpu_hours(sum(demand.values())),
            "demand_over_supply": sum(demand.values()) / supply if supply else None,
            "larger_than_fleet": sum(1 for job in trace.jobs if job.gpus > scenario.gpus),
            "declared_above_cap": sum(
                1 for job in trace.jobs if (job.min_runtime or 0) > scenario.budget.policy.max_min_runtime
            ),
            "skipped": rows_of(trace.skipped),
            "faults": [str(fault) for fault in trace.skipped[:_LISTED]],
            "notes": list(trace.notes),
        },
        "fleet": {
            "gpus": scenario.gpus,
            "nodes": len(scenario.nodes),
            "largest_node": max(node.gpus for node in scenario.nodes),
            "changes": len(trace.capacity),
        },
        "shares": {tree.paths[leaf]: float(tree.share[leaf]) for leaf in tree.leaves},
        "renamed": {name: paid for name, paid in scenario.claims.paid_by.items() if name != paid},
        "unclaimed": dict(scenario.claims.unclaimed),
        "contract": "+".join(sorted(rules)),
        "overlay": "none" if scenario.overlay is None else "gangs",
        "checkpoint_seconds": scenario.pace.checkpoint / SECOND,
        "restore_seconds": scenario.pace.restore / SECOND,
        "warmup_seconds": comparison.warmup / SECOND,
        "seeds": list(comparison.seeds),
    }
