import pytest

from divvy.control.state import FleetState
from divvy.errors import ConflictError
from divvy.fleet.budget import read_budget
from divvy.fleet.event import NodeChanged, Placed, Started, Stopped, Stopping, Submitted
from divvy.fleet.job import JobSpec, StopCause
from divvy.fleet.node import Node


def state_with_a_placed_job(ledger):
    state = FleetState(read_budget({"accounts": {"a": {"share": 100}}}), ledger.append)
    state.apply(NodeChanged(0, Node("n", 4, weight=3)))
    state.apply(Submitted(1, JobSpec("j", "a", "ada", 2, 1000)))
    state.apply(Placed(2, "j", (("n", 2),), protected=True))
    return state


def test_a_run_told_to_leave_before_its_start_was_reported_is_charged_for_what_it_ran():
    ledger = []
    state = state_with_a_placed_job(ledger)
    state.apply(Stopping(5, "j", StopCause.CANCELLED))
    state.apply(Started(4, "j"))
    assert state.snapshot.jobs.rate[0] == 6
    state.apply(Stopped(14, "j", StopCause.CANCELLED, requeue=False))
    assert [(e.start, e.end, e.charge) for e in ledger] == [(4, 14, 60)]
    assert state.snapshot.usage[1].total(14) == 60


def test_a_start_reported_twice_changes_nothing():
    for told in (False, True):
        ledger = []
        state = state_with_a_placed_job(ledger)
        state.apply(Started(4, "j"))
        if told:
            state.apply(Stopping(5, "j", StopCause.PREEMPTED))
        version = state.snapshot.version
        with pytest.raises(ConflictError):
            state.apply(Started(6, "j"))
        assert state.snapshot.version == version
        state.apply(Stopped(14, "j", StopCause.PREEMPTED, requeue=False))
        assert [e.charge for e in ledger] == [60]
