"""The past replayed: what a what-if question rests on, and the trace for Perfetto."""

from types import SimpleNamespace

from divvy.control.facts import Stint
from divvy.fleet.job import JobSpec
from divvy.service.timeline import trace
from divvy.sim.foresight.past import Durations, Ended
from divvy.sim.relive import Lived, relive
from divvy.units import HOUR, MINUTE


def spec(name, **more):
    return JobSpec(**({"id": name, "account": "a", "author": "u", "gpus": 2, "min_runtime": HOUR} | more))


def test_what_ended_keeps_its_runtime_and_what_did_not_gets_one_from_jobs_like_it():
    past = [
        Lived(spec("over"), 5_000, 3 * HOUR, live=False),
        Lived(spec("runs"), 6_000, HOUR, live=True),
        Lived(spec("waits"), 7_000, 0, live=True),
        Lived(spec("cancelled"), 8_000, 0, live=False),
    ]
    found = relive(past, Durations([Ended(spec("x"), 4 * HOUR)] * 5), seed=1)
    assert [(job.id, job.submit) for job in found.trace.jobs] == [
        ("over", 0),
        ("runs", 1_000),
        ("waits", 2_000),
    ]
    assert [job.runtime for job in found.trace.jobs] == [3 * HOUR, 4 * HOUR, 4 * HOUR]
    assert (found.first, found.drawn, found.left_out) == (5_000, 2, 1)


def test_the_same_seed_draws_the_same_past_and_no_jobs_are_none():
    past = [Lived(spec(f"j{n}"), n, 0, live=True) for n in range(20)]
    ended = Durations([Ended(spec("x"), n * HOUR) for n in range(1, 9)])
    assert relive(past, ended, 3) == relive(past, ended, 3)
    assert relive([Lived(spec("c"), 0, 0, live=False)], ended, 0) is None
    assert relive([], ended, 0) is None


def line(job, start, end, account="a", gpus=2, allocated=True):
    return SimpleNamespace(
        cause="occupancy",
        job=job,
        started=start,
        ended=end,
        account=account,
        attempt=1,
        gpus=gpus,
        allocated=allocated,
    )


def reader(ledger, stints=()):
    return SimpleNamespace(ledger=lambda **_: ledger, stints=lambda *_: list(stints))


def test_runs_are_slices_in_lanes_that_do_not_overlap_and_counters_end_at_zero():
    stint = Stint("j4", "b", 1, HOUR, True, False, 0, 50 * MINUTE, None, 1, 7, None)
    ledger = [line("j1", 0, 40 * MINUTE), line("j2", 10 * MINUTE, 30 * MINUTE), line("j3", 41 * MINUTE, HOUR)]
    found = trace(reader(ledger, [stint]), 5 * MINUTE, HOUR)
    slices = [event for event in found["traceEvents"] if event["ph"] == "X"]
    assert [(s["args"]["job"], s["tid"]) for s in slices] == [("j1", 1), ("j2", 2), ("j3", 1), ("j4", 1)]
    assert slices[0]["ts"] == 5 * MINUTE * 1_000, "cut at the period"
    assert slices[3]["args"]["still_runs"] is True
    last = [event for event in found["traceEvents"] if event["ph"] == "C"][-1]
    assert set(last["args"].values()) == {0}
    assert found["otherData"]["left_out"] == 0


def test_an_empty_period_is_a_trace_without_runs():
    assert trace(reader([]), 0, HOUR)["otherData"]["runs"] == 0
