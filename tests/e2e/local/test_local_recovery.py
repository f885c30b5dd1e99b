"""Killing the control plane, a shim or the machine at any moment: nothing is doubled, nothing is lost."""

import contextlib
import itertools
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from divvy.adapters.local.cgroup import Containment
from divvy.adapters.local.shim import main as shim_main
from divvy.control.ports import Halt
from divvy.errors import ConflictError, UnavailableError
from divvy.fleet.event import NodeChanged, Started, Stopped
from divvy.fleet.job import StopCause

pytestmark = pytest.mark.e2e

ADAPTER = str(Path(shim_main.__file__).parents[1])


def wait_for(path, seconds=20):
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"no {path}"
        time.sleep(0.005)


def shim_of(world, job):
    wait_for(world.file(job, "started.json"))
    return json.loads(world.file(job, "started.json").read_text())["shim_pid"]


def test_a_new_engine_adopts_what_runs_and_reports_it_as_if_it_had_been_there(world):
    world.sh("j1", "echo begun; sleep 0.5; exit 4", gpus=3)
    world.job("next", "true", gpus=2)
    world.launch("j1")
    first = world.started("j1")
    world.close()
    world.open()
    world.submit(world.order("j1"), world.order("next"))
    assert world.starts("j1") == [first, first]
    assert [holding.job for holding in world.engine.holdings()] == ["j1", "j1", "j1", ""]
    stop = world.stopped("j1")
    assert (stop.cause, stop.exit_code) == (StopCause.FAILED, 4)
    assert world.stopped("next").cause is StopCause.FINISHED
    assert world.starts("next")[0].at >= stop.at  # its devices were not given away twice
    assert world.stdout("j1") == "begun\n"


def test_what_ended_meanwhile_is_reported_with_its_own_times(world):
    world.sh("j1", "sleep 0.2; exit 6")
    world.launch("j1")
    world.close()
    wait_for(world.file("j1", "ended.json"))
    time.sleep(0.3)
    back = time.time() * 1000
    world.open()
    world.submit(world.order("j1"))
    start, stop = world.started("j1"), world.stopped("j1")
    assert stop.exit_code == 6
    assert 200 <= stop.at - start.at < 5000
    assert stop.at < back - 250


def test_the_ladder_is_climbed_to_its_end_without_a_control_plane(world):
    world.sh("j1", "trap 'echo warned' USR1; trap '' TERM; echo ready; while :; do sleep 0.02; done")
    world.launch("j1")
    world.started("j1")
    world.until(lambda: "ready" in world.stdout("j1"))
    world.halt("j1", StopCause.PREEMPTED)
    world.close()
    wait_for(world.file("j1", "ended.json"))
    world.open()
    world.submit(world.order("j1"), Halt("j1", 1, StopCause.PREEMPTED))
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue, stop.exit_code) == (StopCause.PREEMPTED, True, 137)


def test_a_preemption_that_the_old_engine_could_not_pass_on_is_carried_out_by_the_new_one(world):
    world.sh("j1", "sleep 60", gpus=2)
    world.job("queued", "true", gpus=4)
    world.launch("j1")
    world.started("j1")
    world.launch("queued")
    world.close()
    world.open()
    world.submit(
        world.order("j1"),
        Halt("j1", 1, StopCause.PREEMPTED),
        world.order("queued"),
        Halt("queued", 1, StopCause.CANCELLED),
    )
    assert world.stopped("j1").cause is StopCause.PREEMPTED
    (stop,) = world.stops("queued")
    assert (stop.cause, stop.exit_code) == (StopCause.CANCELLED, None)
    assert world.starts("queued") == []


def test_a_run_that_no_order_claims_is_stopped_and_its_devices_are_not_given_away_before(world):
    world.sh("stray", "trap '' TERM; while :; do sleep 0.02; done", gpus=4, grace_seconds=0.3)
    world.job("next", "true")
    world.launch("stray")
    pid = json.loads((shim_of(world, "stray"), world.file("stray", "started.json"))[1].read_text())["pid"]
    world.close()
    world.open()
    world.submit(world.order("next"))
    assert world.starts("next") == []
    world.stopped("next")
    assert not world.alive(pid)
    assert world.stops("stray") == []


@pytest.mark.parametrize("contained", [True, False])
def test_when_the_shim_is_killed_the_run_is_lost_and_leaves_nobody(idle, contained):
    if not contained:
        idle.containment = Containment()
    idle.open()
    idle.submit()
    tree = "(setsid sh -c 'trap \"\" TERM; echo $$; sleep 60; true' &) ; echo $$; sleep 60; true"
    idle.sh("j1", tree, gpus=4)
    idle.job("next", "true", gpus=4)
    idle.launch("j1")
    idle.launch("next")
    idle.started("j1")
    idle.until(lambda: len(idle.stdout("j1").split()) == 2)
    os.kill(shim_of(idle, "j1"), signal.SIGKILL)
    stop = idle.stopped("j1")
    assert (stop.cause, stop.requeue, stop.exit_code) == (StopCause.NODE_LOST, True, None)
    assert "supervised" in stop.detail
    assert not any(idle.alive(int(pid)) for pid in idle.stdout("j1").split())
    assert idle.stopped("next").cause is StopCause.FINISHED


def test_a_run_lost_while_nobody_watched_is_charged_to_its_last_sign_of_life(world):
    world.sh("j1", "sleep 60")
    world.launch("j1")
    world.started("j1")
    world.close()
    os.kill(shim_of(world, "j1"), signal.SIGKILL)
    sign = world.file("j1", "started.json").stat().st_mtime_ns // 1_000_000
    time.sleep(0.3)
    world.open()
    world.submit(world.order("j1"))
    stop = world.stopped("j1")
    assert stop.cause is StopCause.NODE_LOST
    assert abs(stop.at - sign) <= 2


def test_after_a_restart_of_the_machine_what_ran_is_lost(world):
    world.sh("j1", "sleep 60")
    world.launch("j1")
    world.started("j1")
    world.close()
    os.kill(shim_of(world, "j1"), signal.SIGKILL)
    path = world.file("j1", "started.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot_id": "another"}))
    world.open()
    world.submit(world.order("j1"))
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue) == (StopCause.NODE_LOST, True)
    assert stop.detail == "the machine was restarted"


def test_a_shim_that_cannot_live_is_the_machines_fault_and_the_next_start_waits(world, monkeypatch):
    world.sh("j1", "true")
    with monkeypatch.context() as patch:
        patch.setattr("divvy.adapters.local.runs._SHIM_HOME", "/nowhere")
        world.launch("j1")
        stop = world.stopped("j1")
    assert (stop.cause, stop.requeue) == (StopCause.START_FAILED, True)
    assert "No module named 'shim'" in stop.detail
    assert "in 1 s" in stop.detail
    world.launch("j1", 2)
    assert world.engine.pause_ms() > 0
    assert world.stopped("j1", 2).cause is StopCause.FINISHED
    assert world.starts("j1")[0].at - stop.at >= 900
    world.until(lambda: world.engine.pause_ms() is None)


def test_a_second_engine_is_refused_and_a_useless_directory_too(world, directory):
    with pytest.raises(ConflictError, match="another engine works in"):
        type(world)(directory).open()
    (directory / "file").write_text("")
    with pytest.raises(UnavailableError, match="cannot use"):
        type(world)(directory / "file").open()


def test_a_machine_offered_differently_lets_its_old_nodes_run_out(world):
    def told():
        changes = [event.node for event in world.events if isinstance(event, NodeChanged)]
        world.events = [event for event in world.events if not isinstance(event, NodeChanged)]
        return [(node.name, node.gpus, node.state.name) for node in changes]

    (node,) = (event.node for event in world.events if isinstance(event, NodeChanged))
    assert told() == [("here", 4, "UP")]
    world.sh("j1", "sleep 60", gpus=3)
    world.launch("j1")
    world.started("j1")
    world.close()
    world.shape = (2, 2)
    world.options = {"known": [node]}
    world.open()
    world.submit(world.order("j1"))
    assert told() == [("here-1", 2, "UP"), ("here-2", 2, "UP"), ("here", 4, "DRAINING")]
    world.halt("j1", StopCause.DRAINED)
    assert world.stopped("j1").cause is StopCause.DRAINED
    assert told() == [("here", 4, "DOWN")]


# -- kills at every point ---------------------------------------------------------------------------


def die_at_line(count):
    """Kill this process before it executes its count-th line of the adapter."""
    left = count

    def on_line(frame, event, _arg):
        nonlocal left
        if event == "line":
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return on_line

    def on_call(frame, _event, _arg):
        return on_line if frame.f_code.co_filename.startswith(ADAPTER) else None

    sys.settrace(on_call)


def in_a_child(action):
    """Run something in a forked process; return whether it came to its end alive."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            action()
            os._exit(0)
        os._exit(1)
    status = os.waitpid(pid, 0)[1]
    assert status in (0, signal.SIGKILL)
    return status == 0


def test_the_control_plane_may_be_killed_at_any_line(idle):
    """One job per kill; kills are spread over every line between the order and the report of its end."""
    world = idle
    survived = False
    point, step = 1, 13
    while not survived:
        job = f"k{point}"
        world.sh(job, "echo begun; exit 5", gpus=2)

        def control(job=job, point=point):
            world.open()
            world.submit()
            die_at_line(point)
            world.launch(job)
            world.stopped(job)
            world.close()

        survived = in_a_child(control)
        world.open()
        world.submit(world.order(job))
        stop = world.stopped(job)
        assert (stop.cause, stop.exit_code, len(world.stops(job))) == (StopCause.FAILED, 5, 1), point
        assert len(world.starts(job)) == 1
        assert world.stdout(job) == "begun\n", point
        record = json.loads(world.file(job, "ended.json").read_text())
        took = record["ended_steady_ms"] - record["started_steady_ms"]
        assert stop.at - world.starts(job)[0].at == took
        assert abs(stop.at - record["ended_ms"]) <= 2
        world.until(lambda: world.engine.pause_ms() is None)
        assert not any(holding.job for holding in world.engine.holdings())
        world.close()
        point += step
    assert point > 10 * step


def test_the_control_plane_may_be_killed_at_any_line_of_a_preemption(idle):
    world = idle
    survived = False
    point = 1
    while not survived:
        job = f"p{point}"
        world.sh(job, "trap 'exit 8' TERM; echo begun; sleep 60 & wait", warn_seconds=0)

        def control(job=job, point=point):
            world.open()
            world.submit(world.order(job))
            world.started(job)
            world.until(lambda: "begun" in world.stdout(job))
            die_at_line(point)
            world.halt(job, StopCause.PREEMPTED)
            world.stopped(job)
            world.close()

        survived = in_a_child(control)
        world.open()
        world.submit(world.order(job), Halt(job, 1, StopCause.PREEMPTED))
        stop = world.stopped(job)
        assert (stop.cause, stop.exit_code, stop.requeue) == (StopCause.PREEMPTED, 8, True), point
        assert world.stdout(job) == "begun\n"
        world.close()
        point += 31
    assert point > 4 * 31


def test_the_shim_may_be_killed_at_any_moment(world):
    rng = random.Random(20261)
    world.sh("usual", "true", gpus=4)
    asked = time.monotonic()
    world.launch("usual")
    world.started("usual")
    usual = time.monotonic() - asked
    world.stopped("usual")
    world.events.clear()
    for number in range(25):
        job = f"s{number}"
        world.sh(job, "echo begun; sleep 60", gpus=4)
        world.launch(job)
        shim = world.engine._switchboard._shims[f"{job}.1"]
        time.sleep(rng.uniform(0, 1.5 * usual))
        os.kill(shim, signal.SIGKILL)
        stop = world.stopped(job)
        begun = world.file(job, "stdout").exists() and world.stdout(job)
        assert begun in (False, "", "begun\n")
        claimed = world.file(job, "started.json").exists()
        assert stop.cause is (StopCause.NODE_LOST if claimed else StopCause.START_FAILED)
        assert not begun or claimed
        assert stop.requeue
        world.engine._backoff.worked()  # this machine is fine, whatever it looks like
    kinds = {type(event) for event in world.events}
    assert kinds == {Started, Stopped}


def test_many_jobs_survive_a_control_plane_that_is_killed_again_and_again(idle):
    world = idle
    rng = random.Random(7)
    jobs = [f"m{number}" for number in range(12)]
    for number, job in enumerate(jobs):
        world.sh(job, f"echo begun; sleep {0.1 * (number % 5)}; exit {number + 1}", gpus=1 + number % 2)

    def control():
        world.open()
        world.submit(*(world.order(job) for job in jobs))
        world.until(lambda: all(world.stops(job) for job in jobs), 60)

    kills = 0
    for _ in range(12):
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                control()
                os._exit(0)
            os._exit(1)
        time.sleep(rng.uniform(0.02, 0.25))
        os.kill(pid, signal.SIGKILL)
        kills += os.waitpid(pid, 0)[1] == signal.SIGKILL
    control()
    assert kills >= 5
    for number, job in enumerate(jobs):
        (stop,) = world.stops(job)
        assert (stop.cause, stop.exit_code) == (StopCause.FAILED, number + 1)
        assert world.stdout(job) == "begun\n"
    # At no time did two runs hold the same device: their records are sorted by begin and laid side by side.
    spans = []
    for job in jobs:
        order = json.loads(world.file(job, "order.json").read_text())
        record = json.loads(world.file(job, "ended.json").read_text())
        spans += [
            (place, record["started_steady_ms"], record["ended_steady_ms"])
            for _, places in order["devices"]
            for place in places
        ]
    spans.sort()
    for (place, _, end), (other, start, _) in itertools.pairwise(spans):
        assert place != other or end <= start
