"""A machine that fails: full disks, directories that cannot be written, no rights, no cgroups."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import divvy
from divvy.adapters.local.retention import Clearing, purge
from divvy.fleet.job import StopCause

pytestmark = pytest.mark.e2e


@pytest.fixture
def small_disk(idle):
    """The directory of a world, on a disk of its own of 256 KiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "tmpfs", str(idle.directory)], check=False
    )
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount a disk")
    idle.open()
    idle.submit()
    yield idle
    (idle.directory / "ballast").unlink(missing_ok=True)
    for job in idle.specs:
        idle.halt(job, StopCause.CANCELLED)
    idle.until(lambda: not list((idle.directory / "live").iterdir()))
    idle.close()
    subprocess.run(["umount", str(idle.directory)], check=True)


def fill(world):
    with contextlib.suppress(OSError), (world.directory / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_a_full_disk_delays_jobs_and_loses_none(small_disk):
    world = small_disk
    fill(world)
    world.sh("j1", "echo begun")
    world.sh("j2", "echo begun")
    world.submit(world.order("j1"), world.order("j2"))
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue) == (StopCause.START_FAILED, True)
    assert "No space left on device" in stop.detail
    assert str(world.directory) in stop.detail
    world.launch("j1", 2)  # the planner tries again at once; the engine waits, and asks one job only
    world.until(lambda: len(world.stops("j1")) + len(world.stops("j2")) >= 2)
    first, second = world.stops("j1") + world.stops("j2")
    assert second.at - first.at >= 900
    assert "in 2 s" in second.detail
    (world.directory / "ballast").unlink()
    waiting = "j1" if second.job == "j2" else "j2"
    world.started(waiting)
    assert world.stopped(waiting, 1 + (waiting == "j1")).cause is StopCause.FINISHED
    world.launch(second.job, 3)
    world.until(
        lambda: world.file(second.job, "stdout", 3).exists() and "begun" in world.stdout(second.job, 3)
    )


def test_a_disk_that_fills_up_during_a_run_keeps_its_exit_code(small_disk):
    world = small_disk
    world.sh("j1", "sleep 0.5; exit 42")
    world.launch("j1")
    world.started("j1")
    fill(world)
    stop = world.stopped("j1")
    assert (stop.cause, stop.exit_code) == (StopCause.FAILED, 42)


def test_a_full_disk_hinders_no_preemption(small_disk):
    world = small_disk
    world.sh("j1", "trap 'exit 9' TERM; echo ready; sleep 60 & wait", warn_seconds=0)
    world.launch("j1")
    world.until(lambda: world.file("j1", "stdout").exists() and "ready" in world.stdout("j1"))
    fill(world)
    world.halt("j1", StopCause.PREEMPTED)
    stop = world.stopped("j1")
    assert (stop.cause, stop.exit_code) == (StopCause.PREEMPTED, 9)


def test_an_end_record_that_the_disk_refuses_is_written_when_it_recovers(world):
    world.sh("j1", "sleep 0.3; exit 7")
    world.launch("j1")
    world.started("j1")
    record = world.file("j1", "ended.json.tmp")
    record.unlink()
    record.mkdir()  # nothing can be written under that name
    wait = time.monotonic() + 10
    while "cannot be written" not in world.file("j1", "shim.log").read_text():
        assert time.monotonic() < wait
        time.sleep(0.02)
    assert world.stops("j1") == []
    record.rmdir()
    stop = world.stopped("j1")
    assert (stop.cause, stop.exit_code) == (StopCause.FAILED, 7)


def test_without_file_descriptors_a_job_goes_back_to_the_queue(world):
    world.sh("j1", "true")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        world.launch("j1")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue) == (StopCause.START_FAILED, True)
    assert "Too many open files" in stop.detail


ORDINARY_USER = """
import json, sys
from pathlib import Path
from local_world import World
from divvy.fleet.job import StopCause
world = World(Path(sys.argv[1]) / "state")
engine = world.open()
world.submit()
tree = "id -u; (setsid sh -c 'trap \\"\\" TERM; echo $$; while :; do sleep 1; done' &); sleep 60; true"
world.sh("j1", tree, grace_seconds=0.3, memory_bytes=10**9, user="root", uid=0, gid=0)
world.launch("j1")
world.started("j1")
world.until(lambda: len(world.stdout("j1").split()) == 2)
world.halt("j1", StopCause.PREEMPTED)
stop = world.stopped("j1")
uid, pid = world.stdout("j1").split()
order = json.loads(world.file("j1", "order.json").read_text())
print(json.dumps([stop.cause.name, uid, world.alive(int(pid)), order["lacking"], engine.containment.describe()]))
world.close()
"""


def test_without_any_rights_jobs_run_and_nobody_escapes(directory):
    """The same engine as an ordinary user: no cgroups, no other identities."""
    if os.geteuid() != 0:
        pytest.skip("every other test here runs without rights already")
    directory.chmod(0o777)
    source = str(Path(divvy.__file__).parents[1])
    path = os.pathsep.join([source, str(Path(__file__).parent)])
    for python in (sys.executable, "/usr/bin/python3"):
        # Another user may not be able to read the interpreter or the source; then this cannot be tried here.
        command = [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "env",
            f"PYTHONPATH={path}",
            python,
        ]
        if (
            subprocess.run(
                [*command, "-c", "import local_world"], capture_output=True, check=False
            ).returncode
            == 0
        ):
            break
    else:
        pytest.skip("an ordinary user cannot read the interpreter or the source here")
    ran = subprocess.run(
        [*command, "-c", ORDINARY_USER, str(directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    cause, uid, escaped, lacking, described = json.loads(ran.stdout)
    assert (cause, uid, escaped) == ("PREEMPTED", "65534", False)
    assert described[0].startswith("track: not contained: cannot make cgroups in")
    assert lacking[0].startswith("memory is not limited: cannot make cgroups in")


def test_ended_runs_are_cleared_away_by_age_and_number_and_live_ones_never(world):
    for number in range(4):
        world.sh(f"j{number}", "echo hello")
        world.launch(f"j{number}")
        world.stopped(f"j{number}")
        os.utime(world.file(f"j{number}", "ended.json"), (1000 * (number + 1),) * 2)
    world.sh("long", "sleep 60")
    world.launch("long")
    world.started("long")
    assert purge(world.directory, ended_before=1_000_000).runs == 0
    gone = purge(world.directory, ended_before=1_500_000)
    assert (gone.runs, gone.faults) == (1, ())
    assert gone.bytes > 0
    assert not world.file("j0", "").parent.exists()
    assert purge(world.directory, keep=2).runs == 1
    assert purge(world.directory, keep=0).runs == 2
    assert world.file("long", "order.json").exists()
    clearing = Clearing(world.directory, keep_ms=60_000)
    world.launch("j1", 2)
    world.launch("j2", 2)
    world.stopped("j1", 2)
    world.stopped("j2", 2)
    os.utime(world.file("j1", "ended.json", 2), (1000, 1000))
    assert [clearing.sweep(now) for now in (1, 2, 3_600_001, 3_600_002, 3_600_003)] == [0, 0, 1, 0, 0]
    assert not world.file("j1", "", 2).exists()
    assert world.file("j2", "", 2).exists()
    assert world.file("long", "order.json").exists()
    os.kill(json.loads(world.file("long", "started.json").read_text())["pid"], signal.SIGKILL)
    assert world.stopped("long").exit_code == 137
