"""A job that was preempted begins again with the command to resume with, if it has one."""

import pytest

from divvy.fleet.job import StopCause

pytestmark = pytest.mark.e2e


def test_a_hook_resumes_what_was_preempted_and_only_what_had_begun(world):
    script = "trap 'echo saved; exit 0' USR1; echo fresh $DIVVY_ATTEMPT; sleep 60 & wait"
    world.sh("j1", script, warn_seconds=60, resume_argv=("/bin/sh", "-c", "echo resumed $DIVVY_ATTEMPT"))
    world.launch("j1")
    world.started("j1")
    world.until(lambda: "fresh 1" in world.stdout("j1"))
    world.halt("j1", StopCause.PREEMPTED)
    assert world.stopped("j1").requeue
    world.launch("j1", 2)
    assert world.stopped("j1", times=2).cause is StopCause.FINISHED
    assert world.stdout("j1", 2).split() == ["resumed", "2"]


def test_a_second_attempt_after_a_start_that_failed_is_no_resumption(world):
    world.sh("j1", "echo fresh", resume_argv=("/bin/echo", "resumed"))
    world.launch("j1", 2)
    assert world.stopped("j1").cause is StopCause.FINISHED
    assert world.stdout("j1", 2).split() == ["fresh"]
