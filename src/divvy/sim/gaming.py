"""A tricker beside its honest twin: what a trick brings, and to whom.

Both twins meet the same jobs of everybody else, seed by seed. What counts is work done for the tricker's own
wishes: useful device-time in the window, charged and free apart, and the slowdown of its jobs, from when it
wished for them to when they were over. Devices held for nothing count for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Final

from divvy.planners.jobs.registry import create
from divvy.sim.accounts import equal_shares
from divvy.sim.experiment import part_of, policy_of
from divvy.sim.recorder import OPEN
from divvy.sim.replay import Replay, replay
from divvy.sim.scenario import Scenario, build_fleet
from divvy.sim.traces.trace import Trace
from divvy.sim.tricks import Submission, play_trick
from divvy.units import DAY, MINUTE, gpu_hours

BOUND: Final = 15 * MINUTE
"""Runtime below which a job's slowdown is taken as if it ran so long: else seconds decide."""
WHO: Final = {"heavy": "the account that asks for most", "middle": "the account in the middle"}


@dataclass(frozen=True, slots=True)
class Game:
    """A replay with a tricker in it.

    Attributes:
        policy: Name of the planner.
        seed: Of the contracts.
        nodes: Shape of the fleet, KxM.
        trick: Its name, or ``honest`` for the twin.
        who: Which account, one of `WHO`.
        alone: Whether only the account's busiest author plays it; else all of them.
        days: First day and end of the part of the trace; (0, 0) for all of it.
        warmup: What counts for nothing at the beginning, ms.
        settings: Settings of the budget policy that differ from the defaults.
    """

    policy: str
    seed: int
    nodes: str
    trick: str
    who: str
    alone: bool = False
    days: tuple[float, float] = (0, 0)
    warmup: int = 7 * DAY
    settings: tuple[tuple[str, float], ...] = ()

    def to_document(self) -> dict[str, Any]:
        """Return the description as plain values."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Game:
        """Return the game that `to_document` wrote."""
        settings = tuple((name, value) for name, value in document["settings"])
        return cls(**{**document, "days": tuple(document["days"]), "settings": settings})


def play(game: Game, trace: Trace, stopwatch: Callable[[], float]) -> dict[str, float]:
    """Return what the account and its busiest author got: hours, free hours, slowdown; and the time taken."""
    begin = stopwatch()
    part = part_of(trace, game.days)
    budget, claims = equal_shares(part, policy_of(game.settings))
    scenario = Scenario(part, build_fleet(None, game.nodes), budget, claims, until=part.last_submission)
    honest = scenario.workload(game.seed)
    demand = part.gpu_time()
    ranked = sorted(demand, key=lambda name: (-demand[name], name))
    named = ranked[0 if game.who == "heavy" else len(ranked) // 2]
    account = claims.paid_by[named]
    author = f"{named}-u01"
    workload, submissions = play_trick(
        honest,
        game.trick,
        lambda spec: spec.account == account and (not game.alone or spec.author == author),
        budget.policy,
    )
    run = replay(scenario, create(game.policy), game.seed, workload=workload)
    useful = _useful(run, submissions, game.warmup, part.last_submission)
    slow = _slowdowns(run, submissions, honest.submit, honest.runtime, game.warmup)
    figures = {"seconds": stopwatch() - begin}
    for label, chosen in (
        ("account", [one.account == account for one in honest.spec]),
        ("author", [one.account == account and one.author == author for one in honest.spec]),
    ):
        rows = [row for row, mine in enumerate(chosen) if mine]
        figures[f"{label}.allocated"] = gpu_hours(sum(useful[row][0] for row in rows))
        figures[f"{label}.unallocated"] = gpu_hours(sum(useful[row][1] for row in rows))
        logs = [slow[row] for row in rows if slow[row] is not None]
        if logs:
            figures[f"{label}.slowdown"] = math.exp(fmean(log for log in logs if log is not None))
        figures[f"{label}.jobs"] = float(len(logs))
    return figures


def _useful(run: Replay, submissions: Sequence[Submission], start: int, end: int) -> list[tuple[int, int]]:
    """Return per wish the useful device-ms in the window: charged, free."""
    record, spec = run.record, run.workload.spec
    done = [0] * len(spec)
    wishes = [[0, 0] for _ in range(1 + max(one.wish for one in submissions))]
    for n, row in enumerate(record.job):
        begin = record.start[n] + record.restore[n]
        kept = max(0, record.end[n] - record.lost[n] - begin)
        idle = max(0, submissions[row].parked - done[row])
        first, last = max(begin + idle, start), min(begin + kept, end)
        if last > first:
            free = not spec[row].allocated
            wishes[submissions[row].wish][free] += spec[row].gpus * (last - first)
        done[row] += kept
    return [(paid, free) for paid, free in wishes]


def _slowdowns(
    run: Replay,
    submissions: Sequence[Submission],
    wished: Sequence[int],
    runtime: Sequence[int],
    start: int,
) -> list[float | None]:
    """Return the logarithm of the slowdown per wish of the window; what is not over counts up to now."""
    over = [0] * len(wished)
    for row, one in enumerate(submissions):
        ended = run.record.over[row]
        over[one.wish] = max(over[one.wish], run.end if ended == OPEN else ended)
    return [
        math.log(max(1.0, (over[wish] - wished[wish]) / max(runtime[wish], BOUND)))
        if start <= wished[wish]
        else None
        for wish in range(len(wished))
    ]
