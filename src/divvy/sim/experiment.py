"""One replay of a benchmark, described by plain values: the same description, the same figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from divvy.fleet.budget import Policy
from divvy.planners.jobs.registry import create
from divvy.sim.accounts import equal_shares, shares_by_demand
from divvy.sim.contracts import ContractRule, Contracts
from divvy.sim.foresight.watch import Watch, Watcher
from divvy.sim.measures import Window, measure, window_of
from divvy.sim.overlay import Overlay
from divvy.sim.reclaim import reclaim_scenario, reclaimed
from divvy.sim.replay import replay
from divvy.sim.report import Outcome, flat_figures
from divvy.sim.scenario import Scenario, build_fleet
from divvy.sim.traces.trace import Trace
from divvy.units import DAY


@dataclass(frozen=True, slots=True)
class Experiment:
    """A replay: what is run, under what, and what of it counts.

    Attributes:
        policy: Name of the planner.
        seed: Of contracts and overlay.
        nodes: Shape of the fleet, KxM.
        pooled: Whether its devices are one pool, on which every shape fits.
        shares: ``equal`` or ``by-demand``.
        gangs: Whether the extra gangs are laid over.
        reclaim: Whether the built-in reclaim scenario is run in place of the trace.
        settings: Settings of the budget policy that differ from the defaults.
        spread: Noise of the users' estimates: sigma of the factor between truth and declaration.
        days: First day and end of the part of the trace; (0, 0) for all of it.
        warmup: What counts for nothing at the beginning, ms.
        stop: Whether the replay stops at the last submission; else every job runs to its end.
        ask: At how many moments start intervals are asked for.
    """

    policy: str
    seed: int
    nodes: str
    pooled: bool = False
    shares: str = "equal"
    gangs: bool = False
    reclaim: bool = False
    settings: tuple[tuple[str, float], ...] = ()
    spread: float = 1.0
    days: tuple[float, float] = (0, 0)
    warmup: int = 7 * DAY
    stop: bool = False
    ask: int = 0

    def to_document(self) -> dict[str, Any]:
        """Return the description as plain values."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Experiment:
        """Return the experiment that `to_document` wrote."""
        fields = dict(document)
        fields["settings"] = tuple((name, value) for name, value in fields["settings"])
        fields["days"] = tuple(fields["days"])
        return cls(**fields)


def part_of(trace: Trace, days: tuple[float, float]) -> Trace:
    """Return the jobs of some days of a trace, on a clock that begins with the first of them."""
    first, end = days
    if not end:
        return trace
    jobs = [job for job in trace.jobs if first * DAY <= job.submit < end * DAY]
    start = int(first * DAY)
    return replace(trace, jobs=tuple(job._replace(submit=job.submit - start) for job in jobs), capacity=())


def policy_of(settings: tuple[tuple[str, float], ...]) -> Policy:
    """Return the policy with some settings changed."""
    changes: dict[str, Any] = dict(settings)
    return replace(Policy(), **changes)


def scenario_of(experiment: Experiment, trace: Trace) -> Scenario:
    """Return what an experiment replays, of a trace of which the days are already taken."""
    policy = policy_of(experiment.settings)
    nodes = build_fleet(None, experiment.nodes)
    if experiment.reclaim:
        return reclaim_scenario(nodes, policy)
    shares = equal_shares if experiment.shares == "equal" else shares_by_demand
    budget, claims = shares(trace, policy)
    return Scenario(
        trace,
        build_fleet(sum(node.gpus for node in nodes), None) if experiment.pooled else nodes,
        budget,
        claims,
        Contracts(ContractRule(spread=experiment.spread)),
        overlay=Overlay() if experiment.gangs else None,
        until=trace.last_submission if experiment.stop else None,
    )


def perform(experiment: Experiment, trace: Trace, stopwatch: Callable[[], float]) -> dict[str, float]:
    """Return the figures of an experiment under dotted names; what does not exist is left out.

    Args:
        experiment: What to run.
        trace: The whole trace.
        stopwatch: Returns seconds.
    """
    scenario = scenario_of(experiment, part_of(trace, experiment.days))
    begin = stopwatch()
    watcher = None
    if experiment.ask and scenario.trace.last_submission > experiment.warmup:
        asked = Window(experiment.warmup, scenario.trace.last_submission)
        watcher = Watcher(Watch(experiment.ask), asked, partial(create, experiment.policy), experiment.seed)
    run = replay(scenario, create(experiment.policy), experiment.seed, observe=watcher)
    if experiment.reclaim:
        return {f"reclaim.{name}": value for name, value in reclaimed(run).items()}
    window = window_of(scenario.trace.last_submission, run.end, experiment.warmup)
    figures = measure(run, window)
    extra = {} if watcher is None else {"start_interval": watcher.judge(run.record)}
    return flat_figures(
        Outcome(experiment.policy, experiment.seed, figures, stopwatch() - begin, extra, run.refused)
    )
