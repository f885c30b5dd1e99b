"""A small live world in one process: a real store, a planner of ten lines, an engine that only pretends."""

import itertools
import os
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from divvy.adapters.store import archive
from divvy.adapters.store.database import open_database
from divvy.adapters.store.inbox import Inbox
from divvy.adapters.store.intake import IntakeWriter
from divvy.adapters.store.journal import StoreJournal
from divvy.adapters.store.reader import Reader
from divvy.adapters.store.schema import prepare
from divvy.control.loop import Loop, goes_back
from divvy.control.ports import Launch
from divvy.fleet.budget import read_budget
from divvy.fleet.decision import Plan, Preempt, Start, Wait
from divvy.fleet.event import NodeChanged, Started, Stopped
from divvy.fleet.job import JobSpec, Phase, StopCause
from divvy.fleet.node import Node, NodeState
from divvy.fleet.reason import Reason

BUDGET = {"accounts": {"lab": {"share": 100, "vision": {"share": 60}, "language": {"share": 33.3}}}}
LAUNCH = {"argv": ["true"], "cwd": "/", "env": [], "user": "ada", "uid": 1, "gid": 1}


class TinyPlanner:
    """First come, first served; one unallocated job gives way to an allocated one."""

    name = "tiny"

    def plan(self, snapshot, context):
        jobs, free = snapshot.jobs, list(snapshot.nodes.free)
        decisions, waits = [], []
        spare = [r for r in jobs.live if jobs.phase[r] is Phase.RUNNING and not jobs.spec[r].allocated]
        for row in jobs.live:
            if jobs.phase[row] is not Phase.QUEUED:
                continue
            spec = jobs.spec[row]
            node = next((n for n, f in enumerate(free) if f >= spec.gpus), None)
            if node is None and spec.allocated and spare:
                victim = spare.pop()
                decisions.append(Preempt(victim, row, Reason.PREEMPTED_UNALLOCATED, 1.5, 0.5))
                for place, gpus in jobs.placement[victim]:
                    free[place] += gpus
                node = next((n for n, f in enumerate(free) if f >= spec.gpus), None)
            if node is None:
                waits.append((row, Wait(Reason.WAIT_CAPACITY, spec.gpus, max(free, default=0), 0, 0, 0)))
                continue
            free[node] -= spec.gpus
            decisions.append(Start(row, ((node, spec.gpus),), spec.allocated, Reason.STARTED_FREE))
        return Plan(snapshot.version, context.now, tuple(decisions), waits=tuple(waits))


class PretendEngine:
    """Remembers what ran, as machines do, over any number of restarts of the control plane."""

    def __init__(self, clock, nodes=(("n1", 4), ("n2", 4))):
        self.clock = clock
        self.nodes = nodes
        self.begun = Counter()
        self.runs = {}
        """(job, attempt) -> [spec, started, ended, cause]"""
        self.told = []
        """What this control plane knows of: only its runs are reported to it."""
        self.reported = set()
        self.news = []

    def connect(self, known):
        """A new control plane: nothing was told to it yet, and it knows these nodes."""
        self.told = []
        self.reported = set()
        self.news = [NodeChanged(self.clock(), Node(*node)) for node in self.nodes if node[0] not in known]

    def submit(self, orders):
        for order in orders:
            key = (order.job, order.attempt)
            if isinstance(order, Launch):
                self.told.append(key)
                if key not in self.runs:
                    self.begun[key] += 1
                    self.runs[key] = [order.spec, self.clock(), None, None, 0]
            elif key in self.runs and self.runs[key][2] is None:
                self.end(order.job, order.attempt, order.cause)
        return []

    def end(self, job, attempt, cause=StopCause.FINISHED, code=0):
        self.runs[job, attempt][2:] = [self.clock(), cause, code]

    def poll(self):
        news, self.news = self.news, []
        for job, attempt in self.told:
            spec, started, ended, cause, code = self.runs[job, attempt]
            if (job, attempt, "start") not in self.reported:
                self.reported.add((job, attempt, "start"))
                news.append(Started(started, job))
            if ended is not None and (job, attempt, "end") not in self.reported:
                self.reported.add((job, attempt, "end"))
                news.append(Stopped(ended, job, cause, goes_back(spec, cause), code))
        return news

    def running(self):
        return [key for key, run in self.runs.items() if run[2] is None]


class World:
    """A store with a loop that can be killed and started again."""

    def __init__(self, url, budget=BUDGET, planner=TinyPlanner):
        self.planner = planner
        self.time = 1_000_000
        self.url = url
        self.engine = PretendEngine(self.now)
        self.database = open_database(url)
        prepare(self.database)
        self.reader = Reader(self.database)
        self.intake = IntakeWriter(self.database, lambda: None, self.now)
        if archive.is_new(self.database):
            archive.found(self.database, read_budget(budget), self.time, "test", "first")
        self.start()

    def now(self):
        self.time += 1
        return self.time

    def start(self):
        """Begin as a new process would, knowing only the store and the engine."""
        tenure = archive.take_over(self.database, "test")
        self.time = max(self.time, tenure.at)
        charges = []
        loaded = archive.load(self.database, charges.append)
        self.state = loaded.state
        version = self.reader.budget().version
        self.inbox = Inbox(self.database, self.state, self.now, version)
        self.journal = StoreJournal(
            self.database,
            self.inbox,
            charges,
            self.planner().name,
            7,
            stamp=lambda: (self.time, "boot", self.time),
            seq=loaded.seq,
            since_base=loaded.since_base,
            term=tenure.term,
        )
        self.engine.connect(self.state.snapshot.nodes.row)
        clock = SimpleNamespace(now=self.now)
        self.loop = Loop(
            self.state, self.planner(), clock, self.engine, self.inbox, self.journal, None, seed=7
        )
        self.loop.recover()

    def step(self, times=1):
        for _ in range(times):
            plan = self.loop.step()
            for refusal in self.loop.refused:
                self.inbox.refuse(refusal.event, refusal.error)
            self.loop.refused.clear()
            self.inbox.settle()
        return plan

    def submit(self, name="", account="lab.vision", gpus=2, min_runtime=60_000, **fields):
        spec = JobSpec(name, account, fields.pop("author", "ada"), gpus, min_runtime)._replace(**fields)
        return self.intake.submit(spec, LAUNCH, debug=False, actor="ada").job


@pytest.fixture
def world(tmp_path):
    world = World(f"sqlite:///{tmp_path / 'divvy.db'}")
    yield world
    world.database.dispose()


@pytest.fixture
def make_world(tmp_path):
    made = []

    def make(url=None, **options):
        made.append(World(url or f"sqlite:///{tmp_path / f'divvy{len(made)}.db'}", **options))
        return made[-1]

    yield make
    for each in made:
        each.database.dispose()


@pytest.fixture
def tiny():
    return lambda _name: TinyPlanner()


@pytest.fixture
def node_state():
    return NodeState


@pytest.fixture(scope="session")
def blank(tmp_path_factory):
    """An empty store with its schema, to copy from: migrating takes longer than most tests."""
    path = tmp_path_factory.mktemp("blank") / "divvy.db"
    database = open_database(f"sqlite:///{path}")
    prepare(database)
    database.dispose()
    return path.read_bytes()


@pytest.fixture
def shm(blank):
    """Makes databases in memory-backed files, where a commit waits for no disk."""
    root = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    with tempfile.TemporaryDirectory(dir=root) as directory:
        numbers = itertools.count()

        def new():
            path = Path(directory) / f"{next(numbers)}.db"
            path.write_bytes(blank)
            return f"sqlite:///{path}"

        yield SimpleNamespace(new=new, path=Path(directory))
