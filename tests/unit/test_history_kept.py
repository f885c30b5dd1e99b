"""What is dropped from the histories is never seen by a window that a planner reads."""

from divvy.control.state import FleetState
from divvy.fleet.budget import read_budget
from divvy.fleet.event import NodeChanged, Placed, Started, Stopped, Submitted, Withdrawn
from divvy.fleet.job import JobSpec, StopCause
from divvy.fleet.node import Node
from divvy.units import DAY, HOUR, MINUTE


def test_a_window_that_ended_at_the_last_full_hour_reads_the_same_after_old_changes_were_dropped():
    state = FleetState(read_budget({"accounts": {"a": {"share": 100}}}))
    policy = state.snapshot.policy
    state.apply(NodeChanged(0, Node("n", 8)))
    for number in range(40):
        begin = number * 20 * MINUTE
        state.apply(Submitted(begin, JobSpec(f"j{number}", "a", "ada", 1 + number % 3, HOUR)))
        state.apply(Placed(begin, f"j{number}", (("n", 1 + number % 3),), protected=True))
        state.apply(Started(begin, f"j{number}"))
        state.apply(Stopped(begin + 7 * MINUTE, f"j{number}", StopCause.FINISHED, requeue=False))
    now = policy.lookback + 5 * HOUR + 59 * MINUTE
    hour = now - now % HOUR
    histories = state.snapshot.usage[1], state.snapshot.author_usage[1, "ada"]
    before = [history.windowed(hour, policy.lookback, policy.taper) for history in histories]
    kept = histories[0].changes
    for number in range(2_100):
        state.apply(Submitted(now, JobSpec(f"k{number}", "a", "ada", 1, HOUR)))
        state.apply(Withdrawn(now, f"k{number}"))
    assert histories[0].changes < kept, "nothing was dropped: this test shows nothing"
    assert [history.windowed(hour, policy.lookback, policy.taper) for history in histories] == before
    assert before[0] > 0 and policy.lookback == 7 * DAY
