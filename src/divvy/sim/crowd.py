"""A large fleet under pressure: what one pass of a planner is timed on.

The fleet and its demand at an instant, made from a seed and put into a state by the same events that happen
live: a week of past runs (so that every window has a history), a fleet full of runs of every age, and a
queue. What follows comes from the simulated engine: runs end when their true runtime is over, and for every
run that starts somebody submits another job, so that the queue keeps its length.

Sizes are our assumption for a fleet that trains large models: most jobs small, most GPU time in gangs. True
runtimes have the median and 90% point of Philly (see `divvy.sim.synthetic`), contracts the honest rule of
`divvy.sim.contracts`. What an account runs, has run and asks for differs from its share by lognormal
factors, so that some are owed a lot, some are over-served, and passes take devices back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import numpy as np

from divvy.control.ports import Launch
from divvy.control.state import FleetState
from divvy.fleet.account import AccountSpec, build_tree
from divvy.fleet.budget import Budget, Policy
from divvy.fleet.event import Event, Placed, Started, Stopped, Submitted
from divvy.fleet.job import JobSpec, StopCause
from divvy.fleet.node import Node
from divvy.sim.contracts import Contracts, Workload, draw
from divvy.sim.engine import Pace, SimulatedEngine, VirtualClock
from divvy.sim.steps import Floats, Ints
from divvy.sim.synthetic import MEDIAN_SECONDS, P90_SECONDS
from divvy.sim.traces.trace import CapacityChange, TraceJob
from divvy.units import DAY, HOUR, MINUTE, SECOND

#: Chances of sizes, per mille; 3.6 devices on average, a quarter of the GPU time in gangs of 32 or more.
SIZES: Final = {1: 610, 2: 120, 4: 100, 8: 120, 16: 30, 32: 12, 64: 6, 128: 2}
MODELS: Final = (("H100", 989), ("A100", 312))
_SECOND_MODEL: Final = 0.25
_PICKY: Final = 0.15
_SPREAD: Final = 0.8
_IDLE: Final = 0.05
_LONGEST: Final = 2 * DAY
_Z90: Final = 1.2815515655446004
_PAST: Final = 8 * DAY
_AGE: Final = 4 * HOUR
_BACKLOG: Final = 2 * DAY
_CHECKPOINT: Final = 30 * MINUTE

Place = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Crowd:
    """How large, and how it is drawn.

    Attributes:
        nodes: Machines.
        per_node: Devices on each.
        levels: Children per account, level by level; their product is the number of leaf accounts.
        pending: Jobs in the queue.
        later: Jobs that may be submitted afterwards.
        rounds: Runs that every node has behind it, over the last week.
        seed: Draws everything.
    """

    nodes: int = 1_250
    per_node: int = 8
    levels: tuple[int, ...] = (5, 4, 5, 5)
    pending: int = 100_000
    later: int = 30_000
    rounds: int = 40
    seed: int = 1

    @property
    def gpus(self) -> int:
        """Return the devices of the fleet."""
        return self.nodes * self.per_node

    @property
    def accounts(self) -> int:
        """Return the number of leaf accounts."""
        return math.prod(self.levels)


class Newcomers:
    """The intake of the crowd: as many jobs as it was told to let in since the last pass."""

    __slots__ = ("_clock", "_next", "_work", "due")

    def __init__(self, clock: VirtualClock, work: Workload, first: int) -> None:
        self._clock = clock
        self._work = work
        self._next = first
        self.due = 0
        """How many jobs come with the next pass."""

    def poll(self) -> Iterable[Event]:
        """Return the submissions that are due."""
        now, work, first = self._clock.time, self._work, self._next
        self._next = min(first + self.due, len(work))
        self.due = 0
        return [Submitted(now, work.spec[n], work.debug[n]) for n in range(first, self._next)]


@dataclass(frozen=True, slots=True)
class Scene:
    """A crowd at an instant, with what makes time go on: the ports of a loop besides its record."""

    state: FleetState
    clock: VirtualClock
    engine: SimulatedEngine
    intake: Newcomers


def stage(crowd: Crowd) -> Scene:
    """Return the crowd at its first instant: the fleet is full, the queue is long, no pass has been made."""
    rng = np.random.Generator(np.random.PCG64(crowd.seed))
    budget, nodes = Budget(Policy(), build_tree(_accounts(crowd, rng))), _fleet(crowd)
    state = FleetState(budget)
    weight = _weights(budget, rng)
    work, places = _workload(crowd, budget, weight, rng)
    clock = VirtualClock()
    capacity = [CapacityChange(0, node) for node in nodes]
    engine = SimulatedEngine(clock, work, capacity, Pace(_CHECKPOINT))
    for event in engine.poll():
        state.apply(event)
    for event in _history(crowd, budget, nodes, weight, rng):
        state.apply(event)
    _fill(state, clock, engine, work, nodes, places)
    running = len(places)
    for row in range(running, running + crowd.pending):
        state.apply(Submitted(work.submit[row], work.spec[row], work.debug[row]))
    clock.time = _PAST
    return Scene(state, clock, engine, Newcomers(clock, work, running + crowd.pending))


def _accounts(crowd: Crowd, rng: np.random.Generator) -> Iterator[AccountSpec]:
    """Yield a tree of uneven shares."""
    above = [""]
    for depth, count in enumerate(crowd.levels):
        below = []
        for parent in above:
            part = rng.dirichlet(np.full(count, 4.0))
            for number in range(count):
                path = f"{parent}.{'opwt'[depth % 4]}{number}".lstrip(".")
                yield AccountSpec(path, Decimal(int(part[number] * 9_999)) / 100)
                below.append(path)
        above = below


def _fleet(crowd: Crowd) -> list[Node]:
    """Return nodes of two models in domains of 32."""
    second = round(crowd.nodes * (1 - _SECOND_MODEL))
    return [
        Node(f"n{n:04d}", crowd.per_node, *MODELS[n >= second], domain=f"d{n // 32}")
        for n in range(crowd.nodes)
    ]


def _weights(budget: Budget, rng: np.random.Generator) -> Floats:
    """Return the part of the fleet that each leaf has used lately."""
    tree = budget.tree
    share = np.array([float(tree.share[leaf]) for leaf in tree.leaves])
    weight: Floats = share * np.exp(_SPREAD * rng.standard_normal(len(share)))
    weight[rng.random(len(share)) < _IDLE] = 0
    weight /= weight.sum()
    return weight


def _workload(
    crowd: Crowd, budget: Budget, weight: Floats, rng: np.random.Generator
) -> tuple[Workload, list[Place]]:
    """Return all jobs (those that run, the queue, the later ones) and where the first of them run."""
    sizes = np.array([size for size in SIZES if size <= max(1, crowd.gpus // 4)])
    chance = np.array([SIZES[int(size)] for size in sizes], dtype=np.float64)
    chance /= chance.sum()
    places = list(_packed(rng.choice(sizes, crowd.gpus, p=chance), crowd))
    running = len(places)
    count = running + crowd.pending + crowd.later
    gpus = rng.choice(sizes, count, p=chance)
    gpus[:running] = [sum(part for _, part in place) for place in places]
    share = np.array([float(budget.tree.share[leaf]) for leaf in budget.tree.leaves])
    asked = share * np.exp(_SPREAD * rng.standard_normal(len(share)))
    leaf = rng.choice(len(share), count, p=asked / asked.sum())
    leaf[:running] = rng.choice(len(share), running, p=weight)
    submit = np.full(count, _PAST)
    for part, age in ((slice(0, running), _AGE), (slice(running, running + crowd.pending), _BACKLOG)):
        submit[part] = np.sort(_PAST - rng.integers(1, age, len(submit[part])))
    runtime, picky = _runtimes(_PAST - submit[:running], count, rng), rng.random(count) < _PICKY
    picky[:running] = False
    priority = rng.choice(3, count, p=(0.8, 0.15, 0.05))
    names = [budget.tree.paths[row] for row in budget.tree.leaves]
    columns = (submit, runtime, gpus, leaf, priority, picky)
    jobs = [
        TraceJob(
            f"j{n:06d}", at, length, size, names[row], priority=first, model=MODELS[0][0] if choosy else ""
        )
        for n, (at, length, size, row, first, choosy) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    ]
    paid = {name: name for name in names}
    return draw(jobs, paid, Contracts(), budget.policy, _CHECKPOINT, crowd.seed), places


def _runtimes(age: Ints, count: int, rng: np.random.Generator) -> Ints:
    """Return true runtimes, ms; the first are of runs that have an age: those are longer than others."""
    sigma = math.log(P90_SECONDS / MEDIAN_SECONDS) / _Z90
    drawn = MEDIAN_SECONDS * SECOND * np.exp(sigma * rng.standard_normal(count))
    # What is seen running at an instant is drawn in proportion to its length, and seen at any point of it.
    running = len(age)
    drawn[:running] *= math.exp(sigma**2) * rng.random(running)
    runtimes: Ints = np.clip(drawn, SECOND, _LONGEST).astype(np.int64)
    runtimes[:running] += age
    return runtimes


def _packed(sizes: Ints, crowd: Crowd) -> Iterator[Place]:
    """Yield where runs of some sizes stand that fill the fleet: gangs from the end, the rest side by side."""
    low, high, room, full = -1, crowd.nodes, 0, crowd.per_node
    for size in map(int, sizes):
        whole = size // full
        if whole and high - whole > low:
            high -= whole
            yield tuple((high + n, full) for n in range(whole))
        elif not whole and (size <= room or low + 1 < high):
            if size > room:
                low, room = low + 1, full
            room -= size
            yield ((low, size),)


def _history(
    crowd: Crowd, budget: Budget, nodes: list[Node], weight: Floats, rng: np.random.Generator
) -> Iterator[Event]:
    """Yield a past in which every node ran one job after the other, staggered, and the last has ended."""
    names = [budget.tree.paths[leaf] for leaf in budget.tree.leaves]
    total = crowd.rounds * crowd.nodes
    paid = rng.choice(len(names), total, p=weight).tolist()
    author = rng.integers(0, 20, total).tolist()
    free = (rng.random(total) < 0.18).tolist()
    before: list[str] = [""] * crowd.nodes
    for n in range(total):
        at, place = n * (_PAST - _AGE) // total, n % crowd.nodes
        if before[place]:
            yield Stopped(at, before[place], StopCause.FINISHED, requeue=False, exit_code=0)
        job = before[place] = f"p{n:06d}"
        account = names[paid[n]]
        least = 0 if free[n] else HOUR
        yield Submitted(at, JobSpec(job, account, f"{account}-{author[n]}", crowd.per_node, least))
        yield Placed(at, job, ((nodes[place].name, crowd.per_node),), protected=not free[n])
        yield Started(at, job)
    for job in filter(None, before):
        yield Stopped(_PAST - _AGE, job, StopCause.FINISHED, requeue=False, exit_code=0)


def _fill(
    state: FleetState,
    clock: VirtualClock,
    engine: SimulatedEngine,
    work: Workload,
    nodes: list[Node],
    places: list[Place],
) -> None:
    """Start the first jobs of the workload where they stand, each when it was submitted."""
    for n, place in enumerate(places):
        spec, at = work.spec[n], work.submit[n]
        named = tuple((nodes[node].name, gpus) for node, gpus in place)
        clock.time = at
        state.apply(Submitted(at, spec, work.debug[n]))
        state.apply(Placed(at, spec.id, named, protected=spec.allocated))
        for event in engine.submit([Launch(spec.id, 1, spec, named)]):
            state.apply(event)
