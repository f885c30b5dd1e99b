import pytest
from hypothesis import given
from hypothesis import strategies as st

from divvy.adapters.local.shim.ladder import Ladder, Rung

CAUSES = ["PREEMPTED", "DRAINED", "CANCELLED", "NODE_LOST"]


def test_a_preemption_climbs_rung_by_rung():
    ladder = Ladder(warn_ms=500, grace_ms=1000)
    assert ladder.wait(0) is None
    assert ladder.tick(10**9) is None
    assert ladder.ask("PREEMPTED", 100) is Rung.WARN
    assert ladder.wait(100) == 500
    assert ladder.tick(599) is None
    assert ladder.tick(600) is Rung.TERM
    assert ladder.tick(1599) is None
    assert ladder.tick(1600) is Rung.KILL
    assert ladder.tick(1600) is None
    assert ladder.tick(1700) is Rung.KILL  # again, until nobody is left
    assert ladder.cause == "PREEMPTED"


def test_the_time_limit_begins_with_sigterm():
    ladder = Ladder(500, 1000, limit_at=7000)
    assert ladder.wait(6000) == 1000
    assert ladder.tick(6999) is None
    assert ladder.tick(7000) is Rung.TERM
    assert ladder.cause == "TIME_LIMIT"
    assert ladder.ask("PREEMPTED", 7001) is None
    assert ladder.cause == "TIME_LIMIT"


def test_a_preemption_under_way_is_not_a_time_limit():
    ladder = Ladder(500, 1000, limit_at=200)
    ladder.ask("PREEMPTED", 100)
    assert ladder.tick(300) is None
    assert ladder.tick(600) is Rung.TERM
    assert ladder.cause == "PREEMPTED"


@pytest.mark.parametrize("cause", ["CANCELLED", "NODE_LOST", "TIME_LIMIT"])
def test_other_causes_are_not_announced(cause):
    assert Ladder(500, 1000).ask(cause, 0) is Rung.TERM


def test_a_warning_that_nobody_hears_is_left_out():
    ladder = Ladder(500, 1000)
    assert ladder.unheard(0) is None
    ladder.ask("DRAINED", 0)
    assert ladder.unheard(1) is Rung.TERM
    assert ladder.wait(1) == 1000


def test_no_warning_time_means_no_warning():
    assert Ladder(0, 1000).ask("PREEMPTED", 0) is Rung.TERM


def test_a_cancellation_hastens_and_replaces():
    ladder = Ladder(500, 1000)
    ladder.ask("PREEMPTED", 0)
    assert ladder.ask("DRAINED", 1) is None
    assert ladder.ask("CANCELLED", 2) is Rung.TERM
    assert ladder.ask("CANCELLED", 3) is None
    assert ladder.cause == "CANCELLED"


def test_what_main_leaves_behind_gets_sigterm_once():
    ladder = Ladder(500, 1000)
    assert ladder.main_exited(0) is Rung.TERM
    assert ladder.main_exited(1) is None
    assert ladder.cause == ""
    assert ladder.ask("PREEMPTED", 2) is None  # it is on its way already


@given(
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 100),
    st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from([*CAUSES, "tick", "exit", "unheard"])),
        min_size=1,
        max_size=30,
    ),
)
def test_nobody_climbs_down_and_everybody_who_was_asked_is_killed_in_time(warn, grace, limit, steps):
    ladder = Ladder(warn, grace, limit)
    now = asked_at = 0
    asked = False
    for pause, step in steps:
        now += pause
        before = ladder.rung
        if step == "tick":
            answer = ladder.tick(now)
        elif step == "exit":
            answer = ladder.main_exited(now)
        elif step == "unheard":
            answer = ladder.unheard(now)
        else:
            answer = ladder.ask(step, now)
        assert ladder.rung >= before
        assert answer is None or answer is ladder.rung
        if ladder.rung is not Rung.RUN and not asked:
            asked, asked_at = True, now
    if asked:
        for _ in range(3):
            now += ladder.wait(now) or 0
            ladder.tick(now)
        assert ladder.rung is Rung.KILL
        assert now <= max(asked_at + warn + grace + 1, sum(pause for pause, _ in steps) + 300)
