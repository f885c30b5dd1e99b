"""The engine and its loop over a Slurm that exists in this process: outages, half-worked commands, sight."""

import threading
import time

import pytest

from divvy.adapters.slurm.engine import Mode, SlurmEngine
from divvy.adapters.slurm.record import MARK, SlurmJob, SlurmNode, View
from divvy.adapters.slurm.settings import SlurmSettings
from divvy.adapters.slurm.tres import Gpus
from divvy.control.loop import Loop
from divvy.control.state import FleetState
from divvy.errors import UnavailableError
from divvy.fleet.budget import read_budget
from divvy.planners.jobs import registry

FOUR = Gpus(4, (("h100", 4),))


class Clock:
    def __init__(self):
        self.ahead = 0

    def now(self):
        return time.time_ns() // 1_000_000 + self.ahead


class FakeSlurm:
    """Holds and starts jobs as told; can be silent, and can do only part of what it is told."""

    def __init__(self, jobs, nodes=2):
        self.jobs = {name: {"state": "PENDING", "priority": 1, "mark": ""} for name in jobs}
        self.nodes = {f"n{n}": SlurmNode(f"n{n}", FOUR, partitions=("gpu",)) for n in range(nodes)}
        self.silent = False
        self.deaf_to = set()
        self.told = []
        self.looks = 0
        self.lock = threading.Lock()

    def read(self, now, _accounting):
        with self.lock:
            self.looks += 1
            if self.silent:
                raise UnavailableError.one("slurm-silent", "nobody answers")
            taken = {job["node"] for job in self.jobs.values() if job["state"] == "RUNNING"}
            free = [name for name in self.nodes if name not in taken]
            for job in self.jobs.values():
                if job["state"] == "PENDING" and job["priority"] and free:
                    job |= {"state": "RUNNING", "node": free.pop(), "start": now // 1000 * 1000}
            return View(now, {name: self._job(name, job, now) for name, job in self.jobs.items()}, self.nodes)

    def _job(self, name, job, now):
        nodes = (job["node"],) if "node" in job else ()
        return SlurmJob(
            name, job["state"], "None" if job["priority"] else "JobHeldAdmin", "ada", "a", "gpu", FOUR, nodes=nodes,
            priority=job["priority"], mark=job["mark"], comment="divvy: min_runtime=1h resumable",
            submit=now - 60_000, start=job.get("start", 0), end=job.get("end", 0), exit_code=0,
        )  # fmt: skip

    def history(self, _ago_seconds):
        return {}

    def carry_out(self, command):
        with self.lock:
            self.told.append(" ".join(command))
            if self.silent:
                raise UnavailableError.one("slurm-silent", "nobody answers")
            names = (command[2] if command[1] == "release" else command[2].removeprefix("JobId=")).split(",")
            for name in names:
                if name not in self.deaf_to:
                    held = command[1] != "release"
                    self.jobs[name] |= {
                        "priority": 0 if held else 1,
                        "mark": MARK if held else self.jobs[name]["mark"],
                    }
            return "some of them" if self.deaf_to else ""

    def close(self):
        self.closed = True


class Quiet:
    def poll(self):
        return ()

    def append(self, events, plan, snapshot):
        pass


class Running:
    def __init__(self, slurm, mode):
        self.slurm, self.clock = slurm, Clock()
        self.state = FleetState(read_budget({"accounts": {"a": {"share": 100}}}), None, self.clock.now())
        settings = SlurmSettings(poll=200, timeout=1_000)
        self.engine = SlurmEngine(
            slurm, self.state.snapshot, settings, mode, self.clock, lambda _names: set()
        )
        quiet = Quiet()
        self.loop = Loop(
            self.state,
            registry.create("budget"),
            self.clock,
            self.engine,
            quiet,
            quiet,
            may_act=self.engine.may_act,
        )

    def until(self, ask, seconds=20):
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            plan = self.loop.step()
            self.engine.heed(plan)
            if ask():
                return
            time.sleep(0.02)
        raise AssertionError(f"{self.slurm.told} {self.slurm.jobs}")

    def phases(self):
        return [phase.name for phase in self.state.snapshot.jobs.phase]


@pytest.fixture
def run():
    made = []

    def start(slurm, mode=Mode.ENFORCE):
        made.append(Running(slurm, mode))
        return made[-1]

    yield start
    for each in made:
        each.engine.close()


def hold_all(slurm):
    for job in slurm.jobs.values():
        job |= {"priority": 0, "mark": MARK}


def test_a_release_that_half_worked_is_given_again(run):
    slurm = FakeSlurm(["1", "2"])
    hold_all(slurm)
    slurm.deaf_to = {"2"}
    running = run(slurm)
    running.until(lambda: sum("release" in told for told in slurm.told) >= 2)
    assert slurm.jobs["1"]["state"] == "RUNNING" and slurm.jobs["2"]["state"] == "PENDING"
    slurm.deaf_to = set()
    running.until(lambda: running.phases() == ["RUNNING", "RUNNING"])


def test_nothing_is_decided_or_ordered_while_slurm_is_out_of_sight(run):
    slurm = FakeSlurm(["1", "2", "3"])
    hold_all(slurm)
    running = run(slurm)
    running.until(lambda: running.phases().count("RUNNING") == 2)
    slurm.silent = True
    running.until(lambda: running.engine.problem)
    running.clock.ahead += 60_000
    assert not running.engine.may_act()
    told, looks = len(slurm.told), slurm.looks
    del slurm.jobs["1"]["node"]
    slurm.jobs["1"]["state"] = "COMPLETED"  # room for the third, but nobody sees it
    running.until(lambda: slurm.looks > looks + 2)
    assert running.phases() == ["RUNNING", "RUNNING", "QUEUED"] and len(slurm.told) == told
    slurm.silent = False
    running.until(lambda: running.phases()[2] == "RUNNING")
    assert running.engine.problem == "" and running.engine.may_act()


def test_observing_tells_slurm_nothing(run):
    slurm = FakeSlurm(["1", "2", "3"])
    running = run(slurm, Mode.OBSERVE)
    running.until(lambda: slurm.looks > 3)
    assert slurm.told == [] and running.phases() == ["RUNNING", "RUNNING", "QUEUED"]
    running.until(lambda: running.engine.pause_ms() is None)  # it sleeps between two looks


def test_advising_sleeps_between_two_looks(run):
    slurm = FakeSlurm(["1", "2", "3"])
    running = run(slurm, Mode.ADVISE)
    running.until(lambda: any("Nice=" in told for told in slurm.told))
    running.until(lambda: running.engine.pause_ms() is None)
    running.clock.ahead += 60_000
    running.loop.step()
    assert not running.engine.may_act() and all("Priority" not in told for told in slurm.told)
