import time

import pytest

from divvy.adapters.clock import Instant, SteadyClock, read_instant, resume_at

HERE = Instant(wall=1_000_000, boot="b", uptime=5_000)


@pytest.mark.parametrize(
    ("last", "boot", "uptime", "expected"),
    [
        (900_000, "b", 4_000, 901_000),  # the same boot: the machine knows that a second has passed
        (2_000_000, "b", 4_000, 2_001_000),  # whatever was done to the wall clock
        (900_000, "other", 4_000, 1_000_000),  # after a reboot the wall clock is all there is
        (2_000_000, "other", 4_000, 2_000_000),  # but time does not go backwards
        (900_000, "b", 6_000, 1_000_000),  # an uptime that cannot be of this boot
        (0, "", 0, 1_000_000),
    ],
)
def test_where_a_clock_goes_on(last, boot, uptime, expected):
    assert resume_at(last, boot, uptime, HERE) == expected


def test_setting_the_wall_clock_moves_nothing_and_is_told_once(monkeypatch):
    here = read_instant()
    clock = SteadyClock(here.wall, here)
    assert clock.jumped() == 0
    real = time.time_ns
    for hours in (3, -5):
        before = clock.now()
        monkeypatch.setattr(time, "time_ns", lambda h=hours: real() + h * 3_600 * 10**9)
        assert 0 <= clock.now() - before < 1_000
        step = clock.jumped()
        assert abs(step - (3 if hours == 3 else -8) * 3_600_000) < 1_000
        assert clock.jumped() == 0
        assert abs(clock.offset() - hours * 3_600_000) < 1_000


def test_a_clock_that_is_resumed_from_its_stamp_tells_the_same_time():
    here = read_instant()
    clock = SteadyClock(here.wall + 123_456, here)
    for _ in range(20):
        at, boot, uptime = clock.stamp()
        now = read_instant()
        again = SteadyClock(resume_at(at, boot, uptime, now), now)
        first, second = clock.stamp(), again.stamp()
        assert second[0] - first[0] == second[2] - first[2]
