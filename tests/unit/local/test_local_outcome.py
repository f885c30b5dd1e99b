import pytest

from divvy.adapters.local import outcome
from divvy.adapters.local.backoff import Backoff
from divvy.adapters.local.devices import Device
from divvy.adapters.local.moment import Timekeeper
from divvy.adapters.local.order import run_key, slot_variables
from divvy.adapters.local.shim.clocks import steady_ms, wall_ms
from divvy.control.ports import Launch
from divvy.fleet.job import JobSpec, StopCause

SPEC = JobSpec("j1", "lab", "ada", 2, 1000, time_limit=90_000)
ENDED = {
    "began": True,
    "status": 0,
    "exit_code": 0,
    "cause": "",
    "rung": "RUN",
    "fault": "",
    "message": "",
    "oom_kills": 0,
}


def end(spec=SPEC, **fields):
    return outcome.stopped(spec, 55, {**ENDED, **fields}, 1000)


@pytest.mark.parametrize(
    ("fields", "cause", "requeue", "detail"),
    [
        ({}, StopCause.FINISHED, False, ""),
        ({"status": 256, "exit_code": 1}, StopCause.FAILED, False, "exit code 1"),
        ({"status": 137 << 8, "exit_code": 137}, StopCause.FAILED, False, "exit code 137"),
        ({"status": 9, "exit_code": 137}, StopCause.FAILED, False, "ended by SIGKILL"),
        ({"status": 40, "exit_code": 168}, StopCause.FAILED, False, "ended by signal 40"),
        ({"status": 9, "exit_code": 137, "oom_kills": 1}, StopCause.FAILED, False, "out of memory"),
        ({"cause": "PREEMPTED", "rung": "WARN"}, StopCause.PREEMPTED, True, ""),
        ({"cause": "DRAINED", "status": 15, "exit_code": 143, "rung": "TERM"}, StopCause.DRAINED, True, ""),
        ({"cause": "CANCELLED", "rung": "TERM"}, StopCause.CANCELLED, False, ""),
        (
            {"cause": "TIME_LIMIT", "rung": "TERM"},
            StopCause.TIME_LIMIT,
            False,
            "its time limit of 1m 30s was reached",
        ),
        ({"cause": "NODE_LOST", "rung": "TERM"}, StopCause.NODE_LOST, True, "the machine went down"),
        (
            {"began": False, "fault": "job", "status": None, "exit_code": 127, "message": "cannot run x"},
            StopCause.FAILED,
            False,
            "cannot run x",
        ),
    ],
)
def test_end_records_become_events(fields, cause, requeue, detail):
    stop = end(**fields)
    assert (stop.at, stop.job, stop.cause, stop.requeue) == (55, "j1", cause, requeue)
    assert stop.detail.startswith(detail)
    assert bool(stop.detail) == bool(detail)


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"rung": "WARN"}, StopCause.FINISHED),
        ({"rung": "TERM"}, StopCause.PREEMPTED),
        ({"rung": "WARN", "exit_code": 1, "status": 256}, StopCause.PREEMPTED),
    ],
)
def test_a_job_that_cannot_come_back_may_finish_while_it_is_warned(fields, cause):
    stop = end(SPEC._replace(resumable=False), cause="PREEMPTED", **fields)
    assert (stop.cause, stop.requeue) == (cause, False)


def test_lost_and_unstarted_runs_go_back_as_their_contract_says():
    lost = outcome.lost(SPEC, 5, None, rebooted=True)
    assert (lost.cause, lost.requeue, lost.detail) == (StopCause.NODE_LOST, True, "the machine was restarted")
    assert outcome.lost(SPEC, 5, StopCause.CANCELLED, rebooted=False).requeue is False
    assert outcome.lost(SPEC._replace(resumable=False), 5, None, rebooted=False).requeue is False
    failed = outcome.not_started(SPEC._replace(resumable=False), 5, "disk full", None, retry_ms=4000)
    assert (failed.cause, failed.requeue) == (StopCause.START_FAILED, True)
    assert failed.detail == "disk full; the engine tries its next start in 4 s"
    assert outcome.withdrawn(SPEC, 5, StopCause.PREEMPTED).requeue is True


def test_a_backoff_tries_one_run_at_a_time_and_waits_twice_as_long_each_time():
    backoff = Backoff()
    assert backoff.open(0)
    assert backoff.pause(0) is None
    backoff.trying("a", 0)
    backoff.failed(1000)
    assert not backoff.open(1999)
    assert backoff.pause(1500) == 500
    assert backoff.open(2000)
    backoff.trying("b", 2000)
    assert not backoff.open(2000)
    assert backoff.pause(2000) == 10_000
    assert backoff.open(12_000)  # a trial that hangs must not hold up everybody
    backoff.dropped("a")
    assert not backoff.open(2000)
    backoff.dropped("b")
    assert backoff.open(2000)
    waits = []
    for _ in range(8):
        backoff.failed(0)
        waits.append(backoff.wait_ms)
    assert waits == [2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]
    backoff.worked()
    assert backoff.open(0)


def test_cuda_counts_what_the_run_can_open():
    launch = Launch("j1", 2, SPEC, (("box", 2),))
    devices = (Device(5, "GPU-5", 1), Device(7, "GPU-7", 2))
    free = slot_variables(launch, (("box", (1, 3)),), devices, contained=False)
    assert (free["CUDA_VISIBLE_DEVICES"], free["DIVVY_DEVICES"]) == ("5,7", "5,7")
    assert free["DIVVY_DEVICE_UUIDS"] == "GPU-5,GPU-7"
    assert free["DIVVY_NODES"] == "box:2"
    assert free["DIVVY_ATTEMPT"] == "2"
    held = slot_variables(launch, (("box", (1, 3)),), devices, contained=True)
    assert (held["CUDA_VISIBLE_DEVICES"], held["DIVVY_DEVICES"]) == ("0,1", "5,7")
    slots = slot_variables(
        launch, (("box", (0, 1)),), (Device(0), Device(1)), contained=False, hide_gpus=True
    )
    assert slots["CUDA_VISIBLE_DEVICES"] == ""
    assert "DIVVY_DEVICE_UUIDS" not in slots


def test_run_keys_are_unique_file_names():
    assert run_key("a/b", 1) == "a%2Fb.1"
    assert run_key("a.1", 1) != run_key("a", 11)


class FarClock:
    """A state's clock an hour ahead of the machine."""

    def now(self):
        return steady_ms() + 3_600_000


def test_times_are_exact_within_a_boot_whatever_the_wall_clock_did():
    times = Timekeeper(FarClock(), "boot-1")
    record = {"boot_id": "boot-1", "started_steady_ms": 12_345, "started_ms": 99}
    assert {times.of(record, "started") for _ in range(1000)} == {12_345 + 3_600_000}


def test_times_of_another_boot_are_wall_times_and_never_in_the_future():
    clock = FarClock()
    times = Timekeeper(clock, "boot-2")
    record = {"boot_id": "boot-1", "ended_steady_ms": 1, "ended_ms": 99}
    assert times.of(record, "ended") == 99
    assert times.of({**record, "ended_ms": 10**15}, "ended") <= clock.now()
    assert abs(times.of_file(wall_ms() - 5000) - (clock.now() - 5000)) <= 50
