"""What if: the jobs of the last hours, replayed as they were and under other shares or another policy."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final, NamedTuple

from divvy.adapters.store import archive
from divvy.adapters.store.database import open_database
from divvy.adapters.store.reader import Reader
from divvy.bootstrap.settings import LiveSettings
from divvy.errors import InputError, NotFoundError
from divvy.fleet.budget import Budget, read_budget
from divvy.fleet.node import Node, NodeState
from divvy.planners.jobs import registry
from divvy.sim.accounts import claim
from divvy.sim.foresight.past import REMEMBERED, Durations, Ended
from divvy.sim.measures import measure, window_of
from divvy.sim.relive import Lived, Relived, relive
from divvy.sim.replay import replay
from divvy.sim.report import Outcome, policies
from divvy.sim.scenario import Scenario
from divvy.sim.whatif import Arm, side_of, whatif
from divvy.units import HOUR, SECOND

#: Most jobs that are replayed: the newest.
MOST_JOBS: Final = 5_000
_ONE: Final = "asked"


class Question(NamedTuple):
    """What is asked.

    Attributes:
        shares: Other shares by account path, percent of the parent.
        policy: Another policy; empty: the present one.
        hours: How far back jobs are taken.
    """

    shares: Mapping[str, float]
    policy: str
    hours: float


class _Past(NamedTuple):
    nodes: tuple[Node, ...]
    document: dict[str, Any]
    version: int
    relived: Relived


def answer(settings: LiveSettings, question: Question, now: int) -> dict[str, Any]:
    """Return the figures of both sides and what changes for whom; the basis says what was replayed.

    Reads the store and nothing else; give it a process of its own.

    Raises:
        DivvyError: If the store cannot be read, no job is there, or the other shares are no budget.
    """
    policy = registry.create(question.policy or settings.policy).name
    past = _past(settings, question.hours, now)
    here = read_budget(past.document)
    there = read_budget(_changed(past.document, question.shares))
    base = _scenario(past, here)
    arms, figures = [], []
    for name, scenario, planner in (
        ("now", base, settings.policy),
        ("other", _scenario(past, there), policy),
    ):
        run = replay(scenario, registry.create(planner), 0)
        window = window_of(scenario.trace.last_submission, run.end, 0)
        arms.append(Arm(name, scenario, {(_ONE, 0): side_of(run, window)}))
        told = policies([Outcome(planner, 0, measure(run, window), 0.0, {}, run.refused)])[0]
        figures.append({"side": name, **told})
    relived = past.relived
    return {
        "schema": "divvy.whatif/1",
        "asked": {"shares": dict(question.shares), "policy": policy, "hours": question.hours},
        "basis": {
            "budget_version": past.version,
            "policy": settings.policy,
            "from_at": relived.first / SECOND,
            "until_at": now / SECOND,
            "jobs": len(relived.trace.jobs),
            "drawn": relived.drawn,
            "left_out": relived.left_out,
            "gpus": base.gpus,
        },
        "sides": figures,
        "change": whatif(arms, [_ONE], [0])[0],
    }


def _past(settings: LiveSettings, hours: float, now: int) -> _Past:
    database = open_database(settings.database)
    try:
        state = archive.load(database).state
        reader = Reader(database)
        since = now - round(hours * HOUR)
        submitted = reader.submissions(since, MOST_JOBS)
        ran = reader.ran(since)
        ended = [Ended(spec, spent) for spec, spent in reader.endings(since, REMEMBERED)]
        record = reader.budget()
    finally:
        database.dispose()
    jobs = state.snapshot.jobs
    live = {jobs.spec[row].id: row for row in jobs.live}
    past = [
        Lived(spec, at, ran.get(spec.id, 0) + _so_far(jobs.started, live.get(spec.id), now), spec.id in live)
        for at, spec, _ in submitted
    ]
    relived = relive(past, Durations(ended), now)
    if relived is None or record is None:
        raise NotFoundError.one(
            "whatif-empty",
            f"no job of the last {hours:g} hours has run or waits",
            path="hours",
            fix="ask about more hours, or submit jobs first",
        )
    nodes = tuple(replace(node, state=NodeState.UP, cause="") for node in state.snapshot.nodes.node)
    return _Past(nodes, record.document, record.version, relived)


def _so_far(started: list[int], row: int | None, now: int) -> int:
    """Return how long the present run of a job has lasted, ms."""
    return max(now - started[row], 0) if row is not None and started[row] > 0 else 0


def _scenario(past: _Past, budget: Budget) -> Scenario:
    claimed, claims = claim(past.relived.trace, budget)
    return Scenario(past.relived.trace, past.nodes, claimed, claims)


def _changed(document: Mapping[str, Any], shares: Mapping[str, float]) -> dict[str, Any]:
    """Return a budget document with other shares.

    Raises:
        InputError: If there is no such account.
    """
    changed = deepcopy(dict(document))
    for path, share in shares.items():
        level: Any = changed["accounts"]
        *above, name = path.split(".")
        for step in above:
            level = level.get(step, {}) if isinstance(level, dict) else {}
        if not isinstance(level, dict) or not isinstance(level.get(name), dict):
            raise InputError.one(
                "account-unknown",
                f"no account {path!r}",
                path="shares",
                fix="divvy budget show -q lists them",
            )
        level[name]["share"] = share
    return changed
