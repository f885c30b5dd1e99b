"""From fork to exec: the child takes its place, its identity and its directory, and becomes the command.

The child says over a pipe how far it came. Everything that can fail is tried before the shim claims the
run; only ``exec`` itself comes after the claim.
"""

from __future__ import annotations

import errno
import os
import pwd
import signal
from typing import Any, Final, NamedTuple

from .processes import die_with_parent

#: What the child writes when only the go-ahead and the exec are missing.
READY: Final = b"R"
NOT_FOUND: Final = 127
NOT_RUNNABLE: Final = 126


class Fault(NamedTuple):
    """Why a command did not begin.

    Attributes:
        of: ``job`` where the submission is at fault, ``engine`` where the machine is, ``order`` where the
            run was told to leave before it began.
        exit_code: What a shell would say: 127 not found, 126 not runnable; 0 for the engine's faults.
        message: For people.
    """

    of: str
    exit_code: int
    message: str

    def encode(self) -> bytes:
        """Return the fault as the bytes that go through the pipe."""
        return "\0".join((self.of, str(self.exit_code), self.message)).encode(errors="replace")[:4000]

    @classmethod
    def decode(cls, data: bytes) -> Fault:
        """Return the fault that `encode` wrote."""
        of, exit_code, message = data.decode(errors="replace").split("\0", 2)
        return cls(of, int(exit_code), message)


def become(order: dict[str, Any], logs: tuple[int, int], go: int, report: int, parent: int) -> None:
    """Turn this freshly forked process into the command; never returns.

    Args:
        order: What to run (see `divvy.adapters.local.order.order_document`).
        logs: Descriptors of stdout and stderr.
        go: Pipe on which the shim gives the go-ahead; its end without a word means: do not.
        report: Pipe to the shim, closed by a successful exec.
        parent: Process id of the shim.
    """
    try:
        fault = _prepare(order, logs, parent)
        if fault is None:
            os.write(report, READY)
            if os.read(go, 1) != READY:
                os._exit(NOT_RUNNABLE)
            fault = _execute(order)
        os.write(report, fault.encode())
    except BaseException as error:  # noqa: BLE001 - whatever it was, the shim must hear of it
        os.write(report, Fault("engine", 0, f"before exec: {type(error).__name__}: {error}").encode())
    finally:
        os._exit(NOT_RUNNABLE)


def _prepare(order: dict[str, Any], logs: tuple[int, int], parent: int) -> Fault | None:
    step = "start a session"
    try:
        os.setsid()
        step = "reset its signals"
        _reset_signals()
        for group in order["groups"]:
            step = f"enter the cgroup {group}"
            with open(f"{group}/cgroup.procs", "wb") as file:  # noqa: PTH123
                file.write(b"0")
        step = "reset its oom score"
        _reset_oom_score()
        step = "connect its logs"
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(logs[0], 1)
        os.dup2(logs[1], 2)
        os.umask(0o022)
        if order["switch"]:
            step = f"become user {order['user']} ({order['uid']}:{order['gid']})"
            os.setgroups(_groups(order["uid"], order["gid"]))
            os.setgid(order["gid"])
            os.setuid(order["uid"])
        step = "tie its life to the shim's"
        die_with_parent(parent)
    except OSError as error:
        return Fault("engine", 0, f"the job could not {step}: {error.strerror or error}")
    # From here on the identity is the submitter's, and whatever fails lies in the submitter's reach (a
    # file system of their own may answer with any error): it must not count as a fault of the machine.
    try:
        os.chdir(order["cwd"])
    except (OSError, ValueError) as error:
        return _fault(error, f"cannot enter the working directory {order['cwd']}", NOT_RUNNABLE)
    return None


def _groups(uid: int, gid: int) -> list[int]:
    """Return the groups of a user as this machine knows them, whatever name came with the order."""
    try:
        return os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:
        return [gid]


def _execute(order: dict[str, Any]) -> Fault:
    """Become the command, or return why not."""
    command = order["argv"][0]
    try:
        os.execvpe(command, order["argv"], environment(order))  # noqa: S606 - no shell is the point
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        hint = ""
        if missing and "/" not in command:
            hint = f" on PATH={dict(order['env']).get('PATH', '')}"
        elif missing and os.path.exists(command):  # noqa: PTH110
            hint = " (the file is there: its interpreter, named on its #! line, is not)"
        elif isinstance(error, OSError) and error.errno == errno.ENOEXEC:
            hint = " (a script needs a #! line: no shell is started for it)"
        return _fault(error, f"cannot run {command}{hint}", NOT_FOUND if missing else NOT_RUNNABLE)


def environment(order: dict[str, Any]) -> dict[str, str]:
    """Return the environment of the command; who it runs as overrides what was submitted."""
    env = dict(order["env"])
    if order["switch"]:
        try:
            user = pwd.getpwuid(order["uid"])
        except KeyError:  # a user of a directory service that this machine does not ask
            env["USER"] = env["LOGNAME"] = order["user"]
            env.setdefault("HOME", "/")
        else:
            env["USER"] = env["LOGNAME"] = user.pw_name
            env["HOME"] = user.pw_dir
    return env


def _fault(error: OSError | ValueError, what: str, exit_code: int) -> Fault:
    return Fault("job", exit_code, f"{what}: {getattr(error, 'strerror', None) or error}")


def _reset_signals() -> None:
    """Give the command the dispositions it expects; Python itself ignores SIGPIPE, for one."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _reset_oom_score() -> None:
    """The shim is the last that the kernel should choose when memory runs out; the job is not."""
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:  # noqa: PTH123
            file.write(b"0")
    except OSError:
        return  # it was not lowered either: both need the same privilege
