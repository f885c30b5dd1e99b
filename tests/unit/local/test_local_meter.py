import pytest

from divvy.adapters.local.cgroup import Containment
from divvy.adapters.local.meter import Holding, Meter


def slot(place, job="", attempt=1):
    return Holding("box", place, place, "", job, attempt)


class Clock:
    def __init__(self):
        self.ms = 10_000

    def __call__(self):
        return self.ms


@pytest.fixture
def clock():
    return Clock()


def test_a_slot_is_as_busy_as_its_run(tmp_path, clock):
    (tmp_path / "j1.1").mkdir()
    stat = tmp_path / "j1.1" / "cpu.stat"
    stat.write_text("usage_usec 500000\nuser_usec 1\n")
    meter = Meter(Containment({"track": tmp_path}), clock)
    held = [slot(0, "j1"), slot(1, "j1"), slot(2)]
    assert meter.read(held)[0] == (None, "the first reading is still to come")
    clock.ms += 2000
    stat.write_text("usage_usec 1500000\n")  # one second of CPU time in two seconds, on two slots
    assert meter.read(held) == [
        (0.25, ""),
        (0.25, ""),
        (None, "free: a CPU slot is measured by the run that holds it"),
    ]
    clock.ms += 500
    stat.write_text("usage_usec 9000000\n")
    assert meter.read(held)[0] == (0.25, "")  # too early for another reading
    clock.ms += 500
    assert meter.read(held)[0] == (1.0, "")  # more threads than slots
    clock.ms += 1000
    assert meter.read(held)[0] == (0.0, "")  # a true zero


def test_version_1_counts_beside_its_cpu_controller(tmp_path, clock):
    (tmp_path / "j1.1").mkdir()
    (tmp_path / "j1.1" / "cpu.stat").write_text("nr_periods 0\n")
    usage = tmp_path / "j1.1" / "cpuacct.usage"
    usage.write_text("0\n")
    meter = Meter(Containment({"track": tmp_path / "none", "cpu": tmp_path}), clock)
    meter.read([slot(0, "j1")])
    clock.ms += 1000
    usage.write_text("300000000\n")
    assert meter.read([slot(0, "j1")]) == [(0.3, "")]


def test_what_is_not_counted_has_a_reason_and_no_number(clock):
    meter = Meter(Containment(reasons={"track": "no rights"}), clock)
    assert meter.read([slot(0, "j1")]) == [(None, "CPU time is not counted here: no rights")]


def test_gpus_are_read_whether_they_are_held_or_not(clock):
    class FakeGauge:
        def read(self, ordinal):
            return ordinal / 10, ""

    meter = Meter(Containment(), clock, FakeGauge)
    gpus = [Holding("box", n, n, f"GPU-{n}", "j1" if n else "", 1) for n in range(2)]
    assert meter.read(gpus) == [(0.0, ""), (0.1, "")]
