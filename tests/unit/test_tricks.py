import pytest

from divvy.fleet.budget import Policy
from divvy.sim.contracts import Contracts, draw
from divvy.sim.traces.trace import TraceJob
from divvy.sim.tricks import HONEST, LEAD, TRICKS, play_trick
from divvy.units import DAY, HOUR, MINUTE

JOBS = tuple(
    TraceJob(
        f"j{n}",
        n * HOUR,
        (n + 1) * 20 * MINUTE,
        1 + n % 2,
        "ab"[n % 2],
        author="u",
        min_runtime=n * 5 * MINUTE,
    )
    for n in range(12)
)
POLICY = Policy()
WORK = draw(JOBS, {"a": "a", "b": "b"}, Contracts(), POLICY, 30 * MINUTE, 0)


def tricked(trick):
    return play_trick(WORK, trick, lambda spec: spec.account == "a", POLICY)


@pytest.mark.parametrize("trick", TRICKS)
def test_others_stay_as_they_are_and_the_work_is_the_same(trick):
    work, rows = tricked(trick)
    others = [(one.spec, one.submit, one.runtime) for one in rows if one.spec.account == "b"]
    honest = [(s, WORK.submit[n], WORK.runtime[n]) for n, s in enumerate(WORK.spec) if s.account == "b"]
    assert others == honest
    assert work.submit == sorted(work.submit)
    assert len(work.index) == len(work.spec) == len(rows)
    for wish in range(len(JOBS)):
        mine = [one for one in rows if one.wish == wish]
        assert (
            sum((one.runtime - one.parked) * one.spec.gpus for one in mine)
            == WORK.runtime[wish] * WORK.spec[wish].gpus
        )
    for one in rows:
        assert 0 <= one.spec.min_runtime <= POLICY.max_min_runtime
        assert one.spec.time_limit == 0 or one.spec.time_limit >= max(one.runtime, one.spec.min_runtime)


def test_honest_is_the_workload_itself():
    work, rows = tricked(HONEST)
    assert (work.spec, work.submit, work.runtime, work.debug) == (
        WORK.spec,
        WORK.submit,
        WORK.runtime,
        WORK.debug,
    )
    assert [one.wish for one in rows] == list(range(len(JOBS)))


def test_what_each_trick_declares():
    def mine(trick):
        return [one for one in tricked(trick)[1] if one.spec.account == "a"]

    assert {one.spec.priority for one in mine("all HIGH")} == {100}
    assert {one.spec.min_runtime for one in mine("all 8 h")} == {8 * HOUR}
    assert {one.spec.min_runtime for one in mine("zero-minimum harvesting")} == {0}
    assert max(one.spec.min_runtime for one in mine("split jobs")) <= 15 * MINUTE
    assert len(mine("split jobs")) > len(mine("all HIGH"))
    sleeper = next(one for one in mine("sleepers") if one.wish == 4)
    assert (sleeper.submit, sleeper.parked) == (4 * HOUR - LEAD, LEAD)
    assert all(one.submit >= 6 * DAY for one in mine("end-of-window withdrawal"))
    ranks = [one.spec.priority for one in sorted(mine("own-swap chains"), key=lambda one: one.submit)]
    assert ranks == sorted(ranks) and len(set(ranks)) > 1
