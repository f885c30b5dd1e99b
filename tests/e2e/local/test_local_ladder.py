"""The way out: warn, SIGTERM, SIGKILL, and nobody stays behind."""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from divvy.adapters.local import shim
from divvy.adapters.local.cgroup import Containment
from divvy.adapters.local.devices import offer_gpus
from divvy.adapters.local.nvml import Gpu
from divvy.adapters.local.order import Treatment
from divvy.fleet.job import StopCause

pytestmark = pytest.mark.e2e

STUBBORN = "trap 'echo warned' USR1; trap 'echo term' TERM; echo ready; while :; do sleep 0.02; done"
ESCAPE = """
import os, sys, time
def flee(depth):
    if os.fork() == 0:
        os.setsid()
        if depth:
            flee(depth - 1)
            os._exit(0)
        print(os.getpid(), flush=True)
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
        os._exit(0)
for _ in range(3):
    flee(2)
time.sleep(float(sys.argv[1]))
"""
WORKERS = """
import os, signal, sys, time
def heard(who):
    def handler(number, frame):
        print(who, signal.Signals(number).name, round(time.monotonic() - begin, 1), flush=True)
        if who == "worker" or len(sys.argv) < 2: os._exit(1)
    return handler
begin = time.monotonic()
for _ in range(2):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, heard("worker"))
        signal.signal(signal.SIGUSR1, heard("worker"))
        while True: time.sleep(1)
signal.signal(signal.SIGTERM, heard("main"))
signal.signal(signal.SIGUSR1, heard("main"))
print("ready", flush=True)
while True: time.sleep(1)
"""


def ready(world, job, word="ready"):
    world.launch(job)
    world.started(job)
    world.until(lambda: word in world.stdout(job))


def test_preemption_warns_then_terminates_then_kills(world):
    world.sh("j1", STUBBORN, warn_seconds=0.4, grace_seconds=0.4)
    ready(world, "j1")
    asked = time.time() * 1000
    for _ in range(3):  # idempotent: the ladder is climbed once
        world.halt("j1", StopCause.PREEMPTED)
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue, stop.exit_code) == (StopCause.PREEMPTED, True, 137)
    assert world.stdout("j1").split() == ["ready", "warned", "term"]
    assert 800 <= stop.at - asked < 5000


@pytest.mark.parametrize("cause", [StopCause.CANCELLED, StopCause.TIME_LIMIT])
def test_other_causes_come_without_a_warning(world, cause):
    world.sh("j1", STUBBORN, warn_seconds=60, grace_seconds=0.2)
    ready(world, "j1")
    world.halt("j1", cause)
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue, stop.exit_code) == (cause, False, 137)
    assert world.stdout("j1").split() == ["ready", "term"]


def test_a_cancellation_ends_a_warning_under_way_and_the_job_does_not_come_back(world):
    world.sh("j1", STUBBORN, warn_seconds=60, grace_seconds=0.2)
    ready(world, "j1")
    world.halt("j1", StopCause.PREEMPTED)
    world.until(lambda: "warned" in world.stdout("j1"))
    world.halt("j1", StopCause.CANCELLED)
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue) == (StopCause.CANCELLED, False)


def test_a_checkpoint_on_the_warning_is_a_preemption_and_leaves_early(world):
    world.sh("j1", "trap 'echo saved; exit 0' USR1; echo ready; sleep 60 & wait", warn_seconds=60)
    ready(world, "j1")
    world.halt("j1", StopCause.PREEMPTED)
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue, stop.exit_code) == (StopCause.PREEMPTED, True, 0)
    assert world.stdout("j1").split() == ["ready", "saved"]


def test_a_job_that_cannot_come_back_and_finishes_while_warned_has_finished(world):
    world.sh("j1", "trap 'exit 0' USR1; echo ready; sleep 60 & wait", warn_seconds=60, resumable=False)
    ready(world, "j1")
    world.halt("j1", StopCause.PREEMPTED)
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue) == (StopCause.FINISHED, False)


def test_a_warning_that_would_only_kill_is_left_out(world):
    world.sh("j1", "trap 'echo term; exit 5' TERM; echo ready; sleep 60 & wait", warn_seconds=60)
    ready(world, "j1")
    world.halt("j1", StopCause.DRAINED)
    stop = world.stopped("j1")
    assert (stop.cause, stop.exit_code) == (StopCause.DRAINED, 5)


@pytest.mark.parametrize("warn", ["SIGTERM", "SIGUSR1"])
def test_the_warning_reaches_the_main_process_only_and_sigterm_everybody(world, warn):
    world.job(
        "j1", sys.executable, "-c", WORKERS, "patient", warn_signal=warn, warn_seconds=1.0, grace_seconds=0.5
    )
    ready(world, "j1")
    world.halt("j1", StopCause.PREEMPTED)
    world.stopped("j1")
    said = [line.split() for line in world.stdout("j1").splitlines() if line != "ready"]
    assert said[0][:2] == ["main", warn]
    assert sorted(line[:2] for line in said[1:]) == [
        ["main", "SIGTERM"],
        ["worker", "SIGTERM"],
        ["worker", "SIGTERM"],
    ]
    assert float(said[1][2]) - float(said[0][2]) >= 0.9


@pytest.mark.parametrize("contained", [True, False])
@pytest.mark.parametrize("how", ["main exits", "halt"])
def test_nobody_escapes_by_forking_twice(idle, contained, how):
    if not contained:
        idle.containment = Containment()
    idle.open()
    idle.submit()
    seconds = "0.2" if how == "main exits" else "60"
    idle.job("j1", sys.executable, "-c", ESCAPE, seconds, grace_seconds=0.3, warn_seconds=0)
    idle.launch("j1")
    idle.started("j1")
    idle.until(lambda: len(idle.stdout("j1").split()) == 3)
    pids = [int(word) for word in idle.stdout("j1").split()]
    assert all(idle.alive(pid) for pid in pids)
    if how == "halt":
        idle.halt("j1", StopCause.PREEMPTED)
    stop = idle.stopped("j1")
    assert not any(idle.alive(pid) for pid in pids)
    expected = (StopCause.FINISHED, 0) if how == "main exits" else (StopCause.PREEMPTED, 143)
    assert (stop.cause, stop.exit_code) == expected


def test_what_main_leaves_behind_may_end_in_peace_and_the_run_lasts_until_then(world):
    script = (
        "(trap 'sleep 0.4; echo flushed; exit' TERM; while :; do sleep 0.02; done) & echo ready; sleep 0.2"
    )
    world.sh("j1", script, grace_seconds=5)
    world.launch("j1")
    stop = world.stopped("j1")
    assert (stop.cause, stop.exit_code) == (StopCause.FINISHED, 0)
    assert "flushed" in world.stdout("j1")
    assert stop.at - world.starts("j1")[0].at >= 600


def test_a_preemption_after_the_end_of_main_does_not_make_a_finished_job_run_again(world):
    script = "(trap 'sleep 0.5; exit' TERM; echo ready; while :; do sleep 0.02; done) & sleep 0.2"
    world.sh("j1", script, grace_seconds=10)
    ready(world, "j1")
    pid = json.loads(world.file("j1", "started.json").read_text())["pid"]
    world.until(lambda: not world.alive(pid))
    world.halt("j1", StopCause.PREEMPTED)
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue, stop.exit_code) == (StopCause.FINISHED, False, 0)


def test_a_run_is_called_off_while_its_directory_does_not_answer(idle, tmp_path):
    """A directory that hangs, as one of a dead file server would: here a wrapper of chdir that waits."""
    slow = idle.directory / "slow" / "shim"
    shutil.copytree(Path(shim.__file__).parent, slow)
    child = (slow / "child.py").read_text()
    (slow / "child.py").write_text(
        child.replace("os.chdir(order", "import time; time.sleep(60); os.chdir(order")
    )
    idle.open()
    idle.submit()
    with mock.patch("divvy.adapters.local.runs._SHIM_HOME", str(slow.parent)):
        idle.job("j1", "true", gpus=4)
        idle.launch("j1")
    idle.job("next", "true", gpus=4)
    idle.launch("next")
    time.sleep(0.5)
    stat = (
        Path(f"/proc/{idle.engine._switchboard._shims['j1.1']}/stat").read_text().rpartition(")")[2].split()
    )
    assert int(stat[11]) + int(stat[12]) < 0.3 * os.sysconf("SC_CLK_TCK")  # the shim waits, it does not spin
    idle.halt("j1", StopCause.CANCELLED)
    stop = idle.stopped("j1")
    assert (stop.cause, stop.requeue, stop.detail) == (
        StopCause.CANCELLED,
        False,
        "it was told to leave before it began",
    )
    assert idle.starts("j1") == []
    assert not idle.file("j1", "started.json").exists()
    assert idle.stopped("next").cause is StopCause.FINISHED


def test_a_stopped_process_hears_sigterm(world):
    world.sh("j1", "trap 'echo term; exit 9' TERM; echo ready; kill -STOP $$; sleep 60")
    ready(world, "j1")
    world.halt("j1", StopCause.CANCELLED)
    assert world.stopped("j1").exit_code == 9


def test_the_shim_passes_by_what_a_terminal_sends_and_answers_the_end_of_the_machine(world):
    world.sh("j1", "trap 'echo term; exit 9' TERM; echo $PPID; echo ready; sleep 60 & wait")
    ready(world, "j1")
    shim = int(world.stdout("j1").split()[0])
    os.kill(shim, 1)
    os.kill(shim, 2)
    time.sleep(0.1)
    assert world.alive(shim)
    os.kill(shim, 15)
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue, stop.exit_code) == (StopCause.NODE_LOST, True, 9)
    assert stop.detail == "the machine went down"


def test_cgroups_of_a_run_go_with_it(world):
    if "track" not in world.engine.containment.base:
        pytest.skip("; ".join(world.engine.containment.describe()))
    world.sh("j1", "cat /proc/self/cgroup; echo ready; sleep 60")
    ready(world, "j1")
    paths = [Path(path) for path in world.engine.containment.paths("j1.1")]
    assert paths
    assert all(path.is_dir() for path in paths)
    assert "/j1.1" in world.stdout("j1")
    world.halt("j1", StopCause.CANCELLED)
    world.stopped("j1")
    assert not any(path.exists() for path in paths)


def test_a_run_that_takes_too_much_memory_is_stopped_and_says_so(world):
    containment = world.engine.containment
    if "memory" not in containment.base:
        pytest.skip(containment.reasons["memory"])
    world.job(
        "j1", sys.executable, "-c", "x = bytearray(300_000_000); print(len(x))", memory_bytes=60_000_000
    )
    world.launch("j1")
    stop = world.stopped("j1")
    assert (stop.cause, stop.exit_code) == (StopCause.FAILED, 137)
    assert stop.detail.startswith(
        "out of memory: the kernel killed 1 of its processes at the limit of 60000000"
    )


def test_cpu_time_is_shared_by_slots_and_limited_on_demand(idle):
    idle.options = {"treatment": Treatment(cores_per_slot=0.05)}
    engine = idle.open()
    idle.submit()
    if "cpu" not in engine.containment.base:
        pytest.skip(engine.containment.reasons["cpu"])
    script = "import time; e=time.monotonic()+1\nwhile time.monotonic()<e: pass\nprint(time.process_time())"
    idle.job("j1", sys.executable, "-I", "-S", "-c", script, gpus=2)
    idle.launch("j1")
    assert idle.stopped("j1").exit_code == 0
    assert float(idle.stdout("j1")) < 0.4  # 2 slots of 5% of a core, over about a second


def test_a_busy_slot_is_told_from_an_idle_one(world):
    if "track" not in world.engine.containment.base:
        pytest.skip("; ".join(world.engine.containment.describe()))
    world.job("busy", sys.executable, "-I", "-S", "-c", "while True: pass")
    world.job("idle", "sleep", "60")
    world.launch("busy")
    world.launch("idle")
    world.started("busy")
    world.started("idle")
    assert world.engine.measure()[0][1][0] is None
    time.sleep(1.1)
    busy = {held.job: share for held, (share, _) in world.engine.measure()}
    assert busy["busy"] > 0.2
    assert busy["idle"] < 0.1
    assert busy[""] is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device files")
def test_a_run_can_open_its_own_gpus_only(idle):
    idle.nodes = offer_gpus(
        "here", [Gpu(number, f"GPU-{number}", "H100-80GB", number) for number in range(4)]
    )
    engine = idle.open()
    idle.submit()
    if "devices" not in engine.containment.base:
        pytest.skip(engine.containment.reasons["devices"])
    for minor in range(4):
        os.mknod(idle.directory / f"nvidia{minor}", 0o20666, os.makedev(195, minor))
    script = (
        "import errno, os, sys\n"
        "print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['DIVVY_DEVICES'])\n"
        "for minor in range(4):\n"
        "    try: os.open(f'{sys.argv[1]}/nvidia{minor}', os.O_RDWR)\n"
        "    except OSError as error: print(errno.errorcode[error.errno])\n"
    )
    idle.job("hold", "sleep", "60")
    idle.job("j1", sys.executable, "-I", "-S", "-c", script, str(idle.directory), gpus=2)
    idle.launch("hold")
    idle.launch("j1")
    assert idle.stopped("j1").exit_code == 0
    # No GPU stands behind the files: where the run is let in, the kernel finds no device.
    assert idle.stdout("j1").split() == ["0,1", "1,2", "EPERM", "ENXIO", "ENXIO", "EPERM"]
