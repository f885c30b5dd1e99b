import pytest

from divvy.control.ports import Halt, Launch
from divvy.fleet.event import NodeChanged, Started, Stopped
from divvy.fleet.job import JobSpec, StopCause
from divvy.fleet.node import Node, NodeState
from divvy.sim.contracts import Workload
from divvy.sim.engine import Pace, SimulatedEngine, TraceIntake, VirtualClock
from divvy.sim.traces.trace import CapacityChange

STEP, RESTORE = 30, 3


def world(*jobs, capacity=(), checkpoint=STEP):
    """Jobs are (id, runtime, phase, spec options); returns clock, engine."""
    spec = [JobSpec(name, "a", "u", options.pop("gpus", 1), 10, **options) for name, _, _, options in jobs]
    work = Workload(
        spec,
        [0] * len(jobs),
        [False] * len(jobs),
        [runtime for _, runtime, _, _ in jobs],
        [phase for _, _, phase, _ in jobs],
        {one.id: n for n, one in enumerate(spec)},
    )
    clock = VirtualClock()
    return clock, SimulatedEngine(clock, work, capacity, Pace(checkpoint, RESTORE)), work


def launch(work, job, attempt=1, nodes=(("n", 1),)):
    return Launch(job, attempt, work.spec[work.index[job]], nodes)


def test_a_job_runs_as_long_as_it_truly_takes():
    clock, engine, work = world(("j", 100, 5, {}))
    assert list(engine.submit([launch(work, "j")])) == [Started(0, "j")]
    assert engine.next_at() == 100
    clock.time = 99
    assert list(engine.poll()) == []
    clock.time = 100
    assert list(engine.poll()) == [Stopped(100, "j", StopCause.FINISHED, requeue=False, exit_code=0)]
    assert engine.next_at() is None


@pytest.mark.parametrize(
    ("phase", "at", "kept"),
    [(5, 4, 0), (5, 5, 5), (5, 34, 5), (5, 35, 35), (5, 99, 95), (30, 29, 0), (30, 60, 60)],
)
def test_a_preemption_loses_the_work_since_the_last_checkpoint(phase, at, kept):
    clock, engine, work = world(("j", 100, phase, {}))
    engine.submit([launch(work, "j")])
    clock.time = at
    (stopped,) = engine.submit([Halt("j", 1, StopCause.PREEMPTED)])
    assert stopped == Stopped(at, "j", StopCause.PREEMPTED, requeue=True)
    assert engine.lost[0] == at - kept
    assert engine.next_at() is None
    clock.time = 200
    engine.submit([launch(work, "j", 2)])
    assert engine.next_at() == 200 + RESTORE + 100 - kept


def test_a_run_cut_short_while_restoring_loses_no_work():
    clock, engine, work = world(("j", 100, 5, {}))
    engine.submit([launch(work, "j")])
    clock.time = 50
    engine.submit([Halt("j", 1, StopCause.PREEMPTED)])
    assert engine.lost[0] == 15
    engine.submit([launch(work, "j", 2)])
    clock.time = 52
    engine.submit([Halt("j", 2, StopCause.PREEMPTED)])
    assert engine.lost[0] == 0
    engine.submit([launch(work, "j", 3)])
    assert engine.next_at() == 52 + RESTORE + 65


def test_a_run_never_loses_work_of_an_earlier_one():
    clock, engine, work = world(("j", 100, 5, {}))
    engine.submit([launch(work, "j")])
    clock.time = 40  # saved 35
    engine.submit([Halt("j", 1, StopCause.PREEMPTED)])
    engine.submit([launch(work, "j", 2)])
    clock.time = 40 + RESTORE + 10
    engine.submit([Halt("j", 2, StopCause.PREEMPTED)])
    assert engine.lost[0] == 10
    engine.submit([launch(work, "j", 3)])
    assert engine.next_at() == 53 + RESTORE + 65


def test_without_checkpoints_a_resumable_job_starts_over():
    clock, engine, work = world(("j", 100, 1, {}), checkpoint=0)
    engine.submit([launch(work, "j")])
    clock.time = 60
    engine.submit([Halt("j", 1, StopCause.PREEMPTED)])
    assert engine.lost[0] == 60


def test_a_job_that_is_not_resumable_loses_everything_and_ends():
    clock, engine, work = world(("j", 100, 5, {"resumable": False}))
    engine.submit([launch(work, "j")])
    clock.time = 90
    (stopped,) = engine.submit([Halt("j", 1, StopCause.PREEMPTED)])
    assert not stopped.requeue
    assert engine.lost[0] == 90


def test_a_job_that_restarts_begins_at_zero_without_restoring():
    clock, engine, work = world(("j", 100, 5, {"resumable": False, "restart": True}))
    engine.submit([launch(work, "j")])
    clock.time = 90
    (stopped,) = engine.submit([Halt("j", 1, StopCause.PREEMPTED)])
    assert stopped.requeue
    engine.submit([launch(work, "j", 2)])
    assert engine.next_at() == 190


def test_a_limit_ends_an_attempt():
    clock, engine, work = world(("j", 100, 5, {"time_limit": 40}))
    engine.submit([launch(work, "j")])
    assert engine.next_at() == 40
    clock.time = 40
    assert list(engine.poll()) == [Stopped(40, "j", StopCause.TIME_LIMIT, requeue=False)]


def test_orders_are_idempotent_per_attempt():
    clock, engine, work = world(("j", 100, 5, {}))
    order = launch(work, "j")
    assert len(list(engine.submit([order, order]))) == 1
    clock.time = 10
    halt = Halt("j", 1, StopCause.PREEMPTED)
    assert len(list(engine.submit([halt, halt, order]))) == 1
    assert list(engine.submit([Halt("j", 7, StopCause.PREEMPTED)])) == []


def test_a_node_that_goes_down_takes_its_runs_along():
    down = CapacityChange(50, Node("n", 8, state=NodeState.DOWN))
    clock, engine, work = world(
        ("here", 100, 5, {}), ("there", 100, 5, {}), ("both", 100, 5, {"gpus": 2}), capacity=[down]
    )
    engine.submit(
        [
            launch(work, "here"),
            launch(work, "there", nodes=(("m", 1),)),
            launch(work, "both", nodes=(("m", 1), ("n", 1))),
        ]
    )
    assert engine.next_at() == 50
    clock.time = 50
    changed, *stopped = engine.poll()
    assert isinstance(changed, NodeChanged)
    assert {event.job for event in stopped} == {"here", "both"}
    assert {event.cause for event in stopped} == {StopCause.NODE_LOST}
    assert all(event.requeue for event in stopped)


def test_a_node_that_shrinks_loses_its_newest_runs():
    small = CapacityChange(50, Node("n", 2))
    clock, engine, work = world(*((name, 100, 5, {}) for name in "abc"), capacity=[small])
    for at, name in enumerate("abc"):
        clock.time = at
        engine.submit([launch(work, name)])
    clock.time = 50
    _, stopped = engine.poll()
    assert stopped.job == "c"


def test_a_run_that_ends_when_its_node_dies_has_finished():
    down = CapacityChange(100, Node("n", 8, state=NodeState.DOWN))
    clock, engine, work = world(("j", 100, 5, {}), capacity=[down])
    engine.submit([launch(work, "j")])
    clock.time = 100
    stopped, changed = engine.poll()
    assert stopped.cause is StopCause.FINISHED
    assert isinstance(changed, NodeChanged)


def test_the_intake_submits_what_is_due_and_nothing_twice():
    clock, _, work = world(*((name, 100, 5, {}) for name in "abc"))
    work.submit[:] = [0, 0, 7]
    intake = TraceIntake(clock, work)
    assert intake.next_at() == 0
    assert [event.spec.id for event in intake.poll()] == ["a", "b"]
    assert list(intake.poll()) == []
    assert intake.next_at() == 7
    clock.time = 9
    assert [(event.at, event.spec.id) for event in intake.poll()] == [(7, "c")]
    assert intake.next_at() is None
