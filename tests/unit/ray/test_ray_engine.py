"""The Ray engine against a Ray that is played: silence, restarts, lost requests, runs nobody ordered."""

import random
import shlex
import time

import pytest

from divvy.adapters.ray import engine as module
from divvy.adapters.ray.api import name_nodes
from divvy.adapters.ray.order import OrderError, request, submission_id
from divvy.adapters.ray.outcome import stopped
from divvy.adapters.ray.record import Forget, RayJob, RayNode, RayView, Stop, Submit
from divvy.control.launch import LaunchSpec
from divvy.control.ports import Halt, Launch
from divvy.control.state import FleetState
from divvy.errors import UnavailableError
from divvy.fleet.budget import parse_budget
from divvy.fleet.event import NodeChanged, Started, Stopped
from divvy.fleet.job import JobSpec, StopCause
from divvy.fleet.node import NodeState
from divvy.units import HOUR

OWNER = "divvy-test-"
SPEC = JobSpec("a", "lab", "ada", 2, HOUR, resumable=True)
DETAIL = LaunchSpec(("true",), "/", (("A", "b"),), "ada", 0, 0)
LAUNCH = Launch("a", 1, SPEC, (("n1", 2),))
KEY = f"{OWNER}a-1"


class PlayedRay:
    """Shows what tests say, and notes what it is told."""

    def __init__(self):
        self.session = "one"
        self.jobs = {}
        self.nodes = {"n1": RayNode("id1", "n1", 2, "")}
        self.told = []
        self.silent = False
        self.loses = False
        self.watched = frozenset()
        self.looks = 0

    def read(self, now, accounting):
        assert not accounting
        self.looks += 1
        if self.silent:
            raise UnavailableError.one("ray-silent", "no answer")
        return RayView(now, self.session, dict(self.nodes), dict(self.jobs))

    def carry_out(self, command):
        self.told.append(command)
        if isinstance(command, Submit) and not self.loses:
            self.jobs.setdefault(command.run, RayJob(command.run, "PENDING"))
        return ""

    def close(self):
        pass


class WallClock:
    def now(self):
        return time.time_ns() // 1_000_000


@pytest.fixture
def ray(monkeypatch):
    monkeypatch.setattr(module, "_PERIOD_SECONDS", 0.01)
    return PlayedRay()


@pytest.fixture
def state():
    return FleetState(parse_budget("[accounts.lab]\nshare = 100\n", "test"))


@pytest.fixture
def snapshot(state):
    return state.snapshot


@pytest.fixture
def engine(ray, snapshot, tmp_path):
    made = []

    def make():
        made.append(module.RayEngine(ray, OWNER, tmp_path, lambda _job: DETAIL, snapshot, WallClock()))
        return made[-1]

    yield make
    for each in made:
        each.close()


def look(engine, ray, times=2):
    """Return what is reported within so many new looks."""
    events, end = [], ray.looks + times
    until = time.monotonic() + 10
    while ray.looks < end and time.monotonic() < until:
        events += engine.poll()
        time.sleep(0.01)
    time.sleep(0.05)
    events += engine.poll()
    return [event for event in events if not isinstance(event, NodeChanged)]


def begun(engine, ray):
    """Return an engine whose run is in Ray and has begun."""
    made = engine()
    made.submit([LAUNCH])
    look(made, ray, 4)
    ray.jobs[KEY] = RayJob(KEY, "RUNNING", began=1_000)
    assert look(made, ray, 3) == [Started(1_000, "a")]
    return made


def test_a_request_that_was_lost_is_made_again_and_one_that_got_through_is_not(engine, ray):
    made = engine()
    ray.loses = True
    made.submit([LAUNCH])
    look(made, ray, 4)
    assert len(ray.told) > 1
    ray.loses = False
    look(made, ray, 4)
    count = len(ray.told)
    look(made, ray, 4)
    assert [type(each) for each in ray.told] == [Submit] * count


def test_silence_means_nothing_and_is_said(engine, ray):
    made = begun(engine, ray)
    ray.silent = True
    assert look(made, ray, 3) == []
    assert "no answer" in made.problem
    ray.silent = False
    assert look(made, ray, 3) == []
    assert made.problem == ""


@pytest.mark.parametrize("anew", [False, True], ids=["same Divvy", "restarted Divvy"])
def test_a_restarted_cluster_has_lost_its_runs_and_begins_none_of_them_again(engine, ray, anew):
    made = begun(engine, ray)
    ray.session, ray.jobs = "two", {}
    ray.told.clear()
    if anew:
        made = engine()
        made.submit([LAUNCH])
    (event,) = look(made, ray, 4)
    assert (event.cause, event.requeue) == (StopCause.NODE_LOST, True)
    assert not [each for each in ray.told if isinstance(each, Submit)]


def test_a_run_is_adopted_and_one_that_nobody_ordered_is_stopped(engine, ray):
    begun(engine, ray)
    ray.jobs["divvy-test-b-1"] = RayJob("divvy-test-b-1", "RUNNING", began=5)
    ray.jobs["divvy-test-c-1"] = RayJob("divvy-test-c-1", "SUCCEEDED", ended=1)
    ray.told.clear()
    made = engine()
    assert look(made, ray, 3) == []
    assert ray.told == []  # before the state has spoken, everything may be somebody's
    made.submit([LAUNCH])
    assert look(made, ray, 3) == [Started(1_000, "a")]
    assert set(ray.told) == {Stop("divvy-test-b-1"), Forget("divvy-test-c-1")}


def test_a_run_that_should_leave_is_stopped_once_and_its_end_is_rays(engine, ray):
    made = begun(engine, ray)
    ray.told.clear()
    made.submit([Halt("a", 1, StopCause.PREEMPTED)])
    look(made, ray, 4)
    assert ray.told == [Stop(KEY)]
    ray.jobs[KEY] = RayJob(KEY, "STOPPED", 1_000, 9_000, None, "", "", None)
    assert look(made, ray, 3) == []  # what it said last is still missing
    log = 'hello\ndivvy-verdict {"exit": 3, "end": "exit", "rung": "WARN"}\n'
    ray.jobs[KEY] = RayJob(KEY, "STOPPED", 1_000, 9_000, None, "", "", log)
    assert look(made, ray, 3) == [Stopped(9_000, "a", StopCause.PREEMPTED, True, 3)]


def test_a_run_that_never_began_is_withdrawn(engine, ray):
    made = engine()
    ray.loses = True
    made.submit([LAUNCH, Halt("a", 1, StopCause.CANCELLED)])
    (event,) = look(made, ray, 3)
    assert (event.cause, event.detail) == (StopCause.CANCELLED, "it had not begun")
    assert ray.told == []


@pytest.mark.parametrize(
    ("job", "cause", "code"),
    [
        (RayJob("r", "SUCCEEDED", 1, 2, 0), StopCause.FINISHED, 0),
        (RayJob("r", "FAILED", 1, 2, 7, log='divvy-verdict {"exit": 7, "end": "exit"}'), StopCause.FAILED, 7),
        (
            RayJob("r", "FAILED", 1, 2, 1, log='divvy-verdict {"exit": 1, "end": "lost"}'),
            StopCause.NODE_LOST,
            1,
        ),
        (
            RayJob("r", "FAILED", 1, 2, 143, log='divvy-verdict {"exit": 143, "end": "limit"}'),
            StopCause.TIME_LIMIT,
            143,
        ),
        (
            RayJob("r", "FAILED", 0, 2, 75, log='divvy-verdict {"exit": null, "end": "start"}'),
            StopCause.START_FAILED,
            None,
        ),
        (RayJob("r", "FAILED", 0, 2, None, "RUNTIME_ENV_SETUP_FAILURE"), StopCause.START_FAILED, None),
        (RayJob("r", "FAILED", 1, 2, -9, log="divvy-verdict {broken"), StopCause.NODE_LOST, None),
        (RayJob("r", "STOPPED", 1, 2), StopCause.CANCELLED, None),
    ],
)
def test_how_a_run_ended_follows_from_what_ray_and_the_driver_say(job, cause, code):
    event = stopped(SPEC, job, None, 2)
    assert (event.at, event.cause, event.exit_code) == (2, cause, code)


def test_a_job_that_cannot_go_back_and_ends_well_while_warned_has_finished():
    log = 'divvy-verdict {"exit": 0, "end": "exit", "rung": "WARN"}'
    spec = SPEC._replace(resumable=False)
    event = stopped(spec, RayJob("r", "STOPPED", 1, 2, log=log), StopCause.PREEMPTED, 2)
    assert (event.cause, event.requeue) == (StopCause.FINISHED, False)


def test_submission_ids_carry_owner_job_and_attempt_whatever_the_job_is_called():
    assert submission_id(OWNER, "train-1", 3) == "divvy-test-train-1-3"
    odd = {submission_id(OWNER, name, 1) for name in ("a/b", "a b", "ä", "", "x" * 500)}
    assert len(odd) == 5
    assert all(name.replace("-", "").isalnum() for name in odd)


def test_the_entry_point_shows_the_command_and_is_sound_shell_however_long_it_is():
    nodes = {"n1": RayNode("id1", "n1", 2, "")}
    detail = LaunchSpec(("bash", "-c", "echo 'it is' \"$A\"\n" * 90), "/", (), "ada", 0, 0)
    words = shlex.split(request(KEY, LAUNCH, detail, nodes, 1)["entrypoint"])
    assert words[:3] == ["exec", "python3", "-c"]
    assert words[-1].startswith("bash -c echo 'it is'")


def test_an_environment_that_ray_cannot_take_is_refused_with_what_to_do():
    noise = random.Random(1).randbytes(100_000).hex()
    detail = LaunchSpec(("true",), "/", (("BIG", noise),), "ada", 0, 0)
    with pytest.raises(OrderError, match="--no-env"):
        request(KEY, LAUNCH, detail, {"n1": RayNode("id1", "n1", 2, "")}, 1)


def test_nodes_of_one_name_are_told_apart_and_those_without_gpus_are_none():
    def node(name, number, gpus, state="ALIVE"):
        resources = {"GPU": gpus, "accelerator_type:A100": 1.0} if gpus else {"CPU": 4.0}
        return {"node_id": f"{number}" * 56, "node_name": name, "state": state, "resources_total": resources}

    found = name_nodes(
        [node("x", 1, 8), node("x", 2, 4), node("y", 3, 2), node("z", 4, 0), node("y", 5, 2, "DEAD")]
    )
    assert {name: (each.gpus, each.model) for name, each in found.items()} == {
        "x-11111111": (8, "A100"),
        "x-22222222": (4, "A100"),
        "y": (2, "A100"),
    }


def test_a_node_that_leaves_the_cluster_is_down_and_up_again_when_it_is_back(engine, ray, state):
    made = engine()

    def node_after_a_look():
        end = ray.looks + 3
        while ray.looks < end:
            for event in made.poll():
                state.apply(event)
            time.sleep(0.01)
        return state.snapshot.nodes.node[state.snapshot.nodes.row["n1"]]

    assert (node_after_a_look().state, node_after_a_look().gpus) == (NodeState.UP, 2)
    there = ray.nodes.pop("n1")
    assert node_after_a_look().state is NodeState.DOWN
    ray.nodes["n1"] = there._replace(gpus=4)
    assert (node_after_a_look().state, node_after_a_look().gpus) == (NodeState.UP, 4)
