"""Real processes: what runs, with what, as whom, and how it ends."""

import json
import os
import stat
import sys
import time

import pytest

from divvy.control.ports import Halt
from divvy.fleet.job import StopCause

pytestmark = pytest.mark.e2e


def test_a_job_runs_and_its_logs_and_exit_code_are_kept(world):
    world.sh("j1", "echo out; echo err >&2; exit 3")
    before = time.time() * 1000
    world.launch("j1")
    stop = world.stopped("j1")
    assert (stop.cause, stop.exit_code, stop.requeue) == (StopCause.FAILED, 3, False)
    assert stop.detail == "exit code 3"
    assert before <= world.starts("j1")[0].at <= stop.at <= time.time() * 1000
    assert world.stdout("j1") == "out\n"
    assert world.file("j1", "stderr").read_text() == "err\n"
    assert json.loads(world.file("j1", "ended.json").read_text())["status"] == 3 << 8


def test_a_job_that_a_signal_ends_shows_which(world):
    world.sh("j1", "kill -SEGV $$")
    world.launch("j1")
    stop = world.stopped("j1")
    assert (stop.cause, stop.exit_code, stop.detail) == (StopCause.FAILED, 139, "ended by SIGSEGV")


def test_arguments_reach_no_shell(world):
    words = ["$HOME", "; exit 7", "`id`", "a b", "", "\udc80"]
    world.job("j1", sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", *words)
    world.launch("j1")
    assert world.stopped("j1").cause is StopCause.FINISHED
    assert world.stdout("j1").strip() == ascii(words)


def test_a_job_learns_what_it_was_given(world):
    world.shape = (2, 4)
    world.close()
    world.open()
    world.submit()
    world.job("hold", "sleep", "60")
    world.launch("hold", 1, ("here-1", 1))
    env = (("MINE", "yes"), ("PATH", "/usr/bin:/bin"))
    world.job("gang", "env", gpus=5, env=env, cwd="/usr", time_limit=90_000, name="train")
    world.launch("gang", 1, ("here-1", 3), ("here-2", 2))
    world.stopped("gang")
    seen = dict(line.split("=", 1) for line in world.stdout("gang").splitlines())
    assert seen.pop("DIVVY_RUN")
    assert seen == {
        "MINE": "yes",
        "PATH": "/usr/bin:/bin",
        "CUDA_VISIBLE_DEVICES": "1,2,3,4,5",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "DIVVY_JOB_ID": "gang",
        "DIVVY_JOB_NAME": "train",
        "DIVVY_ATTEMPT": "1",
        "DIVVY_ACCOUNT": "lab.vision",
        "DIVVY_AUTHOR": "ada",
        "DIVVY_GPUS": "5",
        "DIVVY_DEVICES": "1,2,3,4,5",
        "DIVVY_NODES": "here-1:3,here-2:2",
        "DIVVY_MIN_RUNTIME_SECONDS": "60",
        "DIVVY_TIME_LIMIT_SECONDS": "90",
    } | ({"USER": "root", "LOGNAME": "root", "HOME": "/root"} if os.geteuid() == 0 else {})


@pytest.mark.parametrize(
    ("argv", "cwd", "code", "said"),
    [
        (["no-such-command"], "/", 127, "cannot run no-such-command on PATH=/usr/"),
        (["/no/such/file"], "/", 127, "cannot run /no/such/file: No such file"),
        (["/etc/passwd"], "/", 126, "cannot run /etc/passwd: Permission denied"),
        (
            ["true"],
            "/no/such/directory",
            126,
            "cannot enter the working directory /no/such/directory: No such",
        ),
        (["{script}"], "/", 127, "its interpreter, named on its #! line, is not"),
        (["{plain}"], "/", 126, "a script needs a #! line"),
    ],
)
def test_what_cannot_be_executed_fails_once_and_says_why(world, argv, cwd, code, said):
    files = {"script": "#!/no/interpreter\n", "plain": "echo hi\n"}
    for name, text in files.items():
        (world.directory / name).write_text(text)
        (world.directory / name).chmod(0o755)
    world.job(
        "j1", *(word.format(**{name: world.directory / name for name in files}) for word in argv), cwd=cwd
    )
    world.launch("j1")
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue, stop.exit_code) == (StopCause.FAILED, False, code)
    assert said in stop.detail
    assert world.starts("j1") == []


def test_what_was_submitted_wrongly_fails_with_all_faults(world):
    world.job("j1", "true", cwd="relative", warn_signal="SIGNOPE")
    world.launch("j1")
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue) == (StopCause.FAILED, False)
    assert "is not an absolute path" in stop.detail
    assert "SIGNOPE" in stop.detail


def test_a_job_without_launch_details_fails_and_a_failing_store_does_not(world):
    world.job("gone", "true")
    del world.details["gone"]
    world.launch("gone")
    stop = world.stopped("gone")
    assert (stop.cause, stop.requeue) == (StopCause.FAILED, False)
    assert "no job gone" in stop.detail

    def broken(_job):
        raise OSError("database is locked")

    world.close()
    world.detail = broken
    world.open()
    world.submit()
    world.job("j1", "true")
    world.launch("j1")
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue) == (StopCause.START_FAILED, True)
    assert "database is locked" in stop.detail


def test_a_run_waits_until_its_victims_have_left(world):
    leave = world.directory / "leave"
    script = f"trap '' TERM; echo ready; while [ ! -e {leave} ]; do sleep 0.05; done"
    world.sh("old", script, gpus=3, warn_seconds=0, grace_seconds=60)
    world.launch("old")
    world.started("old")
    world.until(lambda: "ready" in world.stdout("old"))
    world.job("new", "true", gpus=2)
    world.submit(Halt("old", 1, StopCause.PREEMPTED), world.order("new"))
    world.job("small", "true", gpus=1)
    world.launch("small")
    world.stopped("small")
    assert world.starts("new") == []  # a device was free, two were not
    leave.touch()
    assert world.started("new").at >= world.stopped("old").at


def test_a_waiting_run_can_be_called_off(world):
    world.job("old", "sleep", "60", gpus=4)
    world.job("new", "true", gpus=1)
    world.launch("old")
    world.launch("new")
    world.halt("new", StopCause.CANCELLED)
    stop = world.stopped("new")
    assert (stop.cause, stop.requeue, stop.exit_code) == (StopCause.CANCELLED, False, None)
    assert not world.file("new", "order.json").exists()


def test_a_node_that_is_not_here_cannot_swallow_a_job(world):
    world.job("j1", "true", gpus=9)
    world.launch("j1", 1, ("elsewhere", 1))
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue) == (StopCause.START_FAILED, True)
    assert "elsewhere" in stop.detail


def test_orders_are_idempotent(world):
    world.sh("j1", "echo begun; sleep 0.3")
    for _ in range(3):
        world.launch("j1")
    world.started("j1")
    world.launch("j1")
    world.stopped("j1")
    assert len(world.starts("j1")) == len(world.stops("j1")) == 1
    world.launch("j1")  # told again after its end: the same story, nothing begun
    assert world.starts("j1")[0] == world.starts("j1")[1]
    assert world.stops("j1")[0] == world.stops("j1")[1]
    world.halt("j1", StopCause.CANCELLED)
    assert world.stdout("j1") == "begun\n"
    world.launch("j1", 2)
    world.stopped("j1", 3)
    assert world.stdout("j1", 2) == "begun\n"


def test_the_time_limit_ends_a_run(world):
    world.sh("j1", "trap 'echo term; exit 0' TERM; sleep 60 & wait", time_limit=300)
    world.launch("j1")
    stop = world.stopped("j1")
    assert (stop.cause, stop.requeue) == (StopCause.TIME_LIMIT, False)
    assert stop.detail == "its time limit of 300ms was reached"
    assert 300 <= stop.at - world.starts("j1")[0].at < 5000
    assert world.stdout("j1") == "term\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change to another user")
def test_as_root_a_job_runs_as_its_submitter(world):
    world.sh(
        "j1", "id -u; id -g; id -G; echo $HOME $USER $LOGNAME; umask; ls -l /proc/self/fd | grep -c ' -> '"
    )
    detail = world.details["j1"]
    world.details["j1"] = type(detail)(detail.argv, "/", (("HOME", "/root"),), "nobody", 65534, 65534)
    world.launch("j1")
    assert world.stopped("j1").exit_code == 0
    uid, gid, groups, names, mask, descriptors = world.stdout("j1").splitlines()
    assert (uid, gid, groups) == ("65534", "65534", "65534")
    assert names == "/nonexistent nobody nobody"
    assert mask == "0022"
    assert int(descriptors) <= 4  # 0, 1, 2 and the one that ls opened: nothing was inherited
    log = world.file("j1", "stdout").stat()
    assert (log.st_uid, log.st_gid, stat.S_IMODE(log.st_mode)) == (65534, 65534, 0o640)
    for path in (world.file("j1", ""), world.directory / "jobs", world.directory / "live"):
        assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (0, 0o700)
    assert stat.S_IMODE(world.file("j1", "order.json").stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change to another user")
def test_a_submitter_may_not_enter_what_is_not_theirs(world):
    secret = world.directory / "secret"
    secret.mkdir(mode=0o700)
    world.job("j1", "true", cwd=str(secret), user="nobody", uid=65534, gid=65534)
    world.launch("j1")
    stop = world.stopped("j1")
    assert (stop.cause, stop.exit_code) == (StopCause.FAILED, 126)
    assert "Permission denied" in stop.detail


def test_a_job_ignores_and_blocks_no_signal_by_inheritance(world):
    world.job("j1", "cat", "/proc/self/status")
    world.launch("j1")
    world.stopped("j1")
    masks = dict(line.split(":\t", 1) for line in world.stdout("j1").splitlines() if line.startswith("Sig"))
    inside_libc = 0b11 << 31  # signals 32 and 33, which no program can set
    assert int(masks["SigIgn"], 16) & ~inside_libc == 0
    assert int(masks["SigBlk"], 16) == 0


def test_a_job_is_not_in_the_session_of_the_engine_or_the_shim(world):
    world.job("j1", sys.executable, "-c", "import os; print(os.getpid(), os.getsid(0), os.getppid())")
    world.launch("j1")
    world.stopped("j1")
    pid, session, parent = map(int, world.stdout("j1").split())
    assert pid == session
    assert parent != os.getpid()
    world.until(lambda: not world.alive(parent))
