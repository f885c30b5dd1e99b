"""The life of a run: read the order, claim the run, start the command, see everybody out, leave a record.

    python -I -S -c BOOT DIRECTORY      (standard input: the FIFO over which the engine speaks)

The working directory becomes the run's directory; its files are described in
`divvy.adapters.local.runs`. Every wait is by a monotonic clock; the wall clock is only written down.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import sys
import time
from typing import Any, Final, NoReturn

from . import record
from .child import NOT_RUNNABLE, READY, Fault, become
from .clocks import boot_id, steady_ms, wall_ms
from .ladder import Ladder, Rung
from .processes import (
    become_reaper,
    catches,
    descendants,
    kill_groups,
    members,
    read_stat,
    remove_groups,
    signal_all,
)

ORDER: Final = "order.json"
STARTED: Final = "started.json"
ENDED: Final = "ended.json"

_ALIVE_EVERY_MS: Final = 30_000
_RETRY_SECONDS: Final = 1.0
_REMOVE_TRIES: Final = 50
_REMOVE_PAUSE_SECONDS: Final = 0.02
_LOOK_AGAIN_MS: Final = 20


class Shim:
    """Supervises one run.

    Args:
        order: What to run (see `divvy.adapters.local.order.order_document`).
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.groups: list[str] = order["groups"]
        self.child = 0
        self.status: int | None = None
        self.usage: Any = None
        self.rung_at_exit = Rung.RUN
        self.cause_at_exit = ""
        self.started_ms = 0
        self.started_steady_ms = 0
        self.ladder = Ladder(order["warn_ms"], order["grace_ms"])
        self._inbox = b""
        self._to_notify = b""
        self._told_to_stop = False
        self._outsiders = False
        self._alive_at = 0
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    # -- beginning ------------------------------------------------------------------------------------

    def begin(self) -> Fault | None:
        """Start the command; return why it did not begin.

        The order of steps is the promise that a run begins at most once: the command is executed only
        after `started.json` is on the disk, and only by the process whose claim of that name succeeded.
        """
        record.reserve(ENDED)
        logs = (self._open_log("stdout"), self._open_log("stderr"))
        go_read, go_write = os.pipe2(os.O_CLOEXEC)
        report_read, report_write = os.pipe2(os.O_CLOEXEC)
        shim = os.getpid()
        self.child = os.fork()
        if self.child == 0:
            os.close(go_write)
            become(self.order, logs, go_read, report_write, shim)
        for descriptor in (go_read, report_write, *logs):
            os.close(descriptor)
        try:
            fault = self._release(go_write, report_read)
        finally:
            os.close(go_write)
            os.close(report_read)
        if fault is not None:  # the child may hang in a directory that does not answer
            signal_all([self.child], signal.SIGKILL)
        return fault

    def _release(self, go: int, report: int) -> Fault | None:
        """Let the child execute the command once the run is claimed; return why that came to nothing."""
        word = self._word(report)
        if word != READY:
            return self._fault_of(word)
        self.started_ms, self.started_steady_ms = wall_ms(), steady_ms()
        stat = read_stat(self.child)
        claim = {
            "started_ms": self.started_ms,
            "started_steady_ms": self.started_steady_ms,
            "pid": self.child,
            "pid_ticks": stat.ticks if stat else 0,
            "shim_pid": os.getpid(),
            "boot_id": boot_id(),
        }
        if not record.claim(STARTED, claim):
            # By another shim, whose record is not ours to write.
            sys.exit("this run was begun before; it is not begun twice")
        for directory in ("..", "../.."):
            record.sync_directory(directory)
        with contextlib.suppress(BrokenPipeError):  # the child is dead already; its status will say how
            os.write(go, READY)
        word = self._word(report)
        if word:
            return self._fault_of(word)
        if self.order["limit_ms"]:
            self.ladder.limit_at = self.started_steady_ms + self.order["limit_ms"]
        return None

    def _word(self, report: int) -> bytes:
        """Return what the child says: empty when the command was executed, or when the child is no more.

        The wait may be long, in a directory of a dead file server say. Before the claim it can be called
        off; after it the ladder holds.
        """
        poller = select.poll()
        for descriptor in (report, 0, self._wake_read):
            poller.register(descriptor, select.POLLIN)
        while True:
            pause = self.ladder.wait(steady_ms())
            if any(descriptor == report for descriptor, _ in poller.poll(pause)):
                return os.read(report, 8192)
            _drain(self._wake_read)
            rungs = self._obey()
            if self.started_ms:
                for rung in rungs:
                    self._act(rung)
            elif self.ladder.cause:
                return Fault("order", 0, "it was told to leave before it began").encode()

    def _fault_of(self, word: bytes) -> Fault:
        """Return the fault that the child told, or the one that its death without a word means."""
        if word:
            return Fault.decode(word)
        if oom_kills(self.order["oom"]):
            return Fault("job", NOT_RUNNABLE, "out of memory: the limit is too low to begin at all")
        return Fault("job", NOT_RUNNABLE, "it was killed before the command began")

    def _open_log(self, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o640)
        os.fchmod(descriptor, 0o640)
        if self.order["switch"]:
            os.fchown(descriptor, self.order["uid"], self.order["gid"])
        return descriptor

    # -- running --------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Serve the run until nobody of it is left."""
        self.notify()
        poller = select.poll()
        poller.register(0, select.POLLIN)
        poller.register(self._wake_read, select.POLLIN)
        while self._reap():
            poller.poll(self._pause())
            _drain(self._wake_read)
            for rung in self._obey():
                self._act(rung)
            self._show_life(steady_ms())
            if self._to_notify:
                self.notify()

    def _pause(self) -> int:
        now = steady_ms()
        waits = [self._alive_at + _ALIVE_EVERY_MS - now, self.ladder.wait(now)]
        if self._to_notify or self._outsiders:
            waits.append(_LOOK_AGAIN_MS)
        return max(0, min(wait for wait in waits if wait is not None))

    def _reap(self) -> bool:
        """Collect the dead; return whether anybody is left."""
        pid = -1
        while pid != 0:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                # Nobody descends from here any more; somebody may have been moved into the cgroups.
                self._outsiders = bool(members(self.groups))
                if not self._outsiders:
                    return False
                break
            if pid == self.child:
                self.status, self.usage = status, usage
                self.rung_at_exit, self.cause_at_exit = self.ladder.rung, self.ladder.cause
        if self.status is not None:
            self._act(self.ladder.main_exited(steady_ms()))
        return True

    def _act(self, rung: Rung | None) -> None:
        """Send the signal of a rung that was just reached."""
        if rung is Rung.WARN:
            number = self.order["warn_signal"]
            if self.status is None and catches(self.child, number):
                signal_all([self.child], number)
            else:  # it would only kill the process, or nobody would hear it
                self._act(self.ladder.unheard(steady_ms()))
        elif rung is Rung.TERM:
            signal_all(self._everybody(), signal.SIGTERM)
        elif rung is Rung.KILL:
            kill_groups(self.groups)
            signal_all(self._everybody(), signal.SIGKILL)

    def _everybody(self) -> list[int]:
        below = descendants(os.getpid())
        return below + sorted(members(self.groups) - set(below))

    def _obey(self) -> list[Rung | None]:
        """Tell the ladder what was said and what time it is; return the rungs that it climbs."""
        self._inbox += _drain(0)
        *lines, self._inbox = self._inbox.split(b"\n")
        asked = [line.decode("ascii", "replace") for line in lines if line]
        if self._told_to_stop:
            asked.append("NODE_LOST")
        now = steady_ms()
        return [*(self.ladder.ask(cause, now) for cause in asked), self.ladder.tick(now)]

    def arm(self) -> None:
        """Let signals end the wait, and let those of a terminal pass by."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)

    def _on_term(self, *_: object) -> None:
        """Note the signal that the machine sends to everybody when it goes down."""
        self._told_to_stop = True

    def _show_life(self, now: int) -> None:
        """Leave a sign of life, so that a run that is lost is not charged beyond the last one."""
        if now - self._alive_at >= _ALIVE_EVERY_MS:
            self._alive_at = now
            try:
                os.utime(STARTED)
            except OSError:
                return  # a disk that fails for a while must not end the supervision

    def notify(self) -> None:
        """Tell the engine that there is a new record; without an engine nobody misses it."""
        word = self._to_notify = f"{self.order['key']}\n".encode()
        try:
            descriptor = os.open(self.order["notify"], os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._to_notify = b""  # nobody listens: a new engine looks for itself
            return
        try:
            os.write(descriptor, word)
            self._to_notify = b""
        except BlockingIOError:
            return  # full: again after a moment
        except BrokenPipeError:
            self._to_notify = b""
        finally:
            os.close(descriptor)

    # -- ending ---------------------------------------------------------------------------------------

    def end(self, fault: Fault | None) -> None:
        """Write the end record, however long the disk refuses it, and remove the run's cgroups."""
        ended_steady_ms = steady_ms()
        # Whoever asked for devices after the main process had ended did not end it.
        cause = self.ladder.cause if self.status is None else self.cause_at_exit
        document = {
            "began": fault is None,
            "started_ms": self.started_ms,
            "started_steady_ms": self.started_steady_ms,
            "ended_ms": wall_ms(),
            "ended_steady_ms": ended_steady_ms,
            "boot_id": boot_id(),
            "status": self.status,
            "exit_code": (fault.exit_code or None) if fault else exit_code(self.status),
            "cause": cause,
            "rung": self.rung_at_exit.name,
            "fault": fault.of if fault else "",
            "message": fault.message if fault else "",
            "oom_kills": oom_kills(self.order["oom"]),
            "cpu_ms": int((self.usage.ru_utime + self.usage.ru_stime) * 1000) if self.usage else 0,
            "max_rss_bytes": self.usage.ru_maxrss * 1024 if self.usage else 0,
        }
        while True:
            try:
                record.write_reserved(ENDED, document)
            except FileNotFoundError:
                break  # somebody removed the directory: nobody will ask for the record
            except OSError as error:
                _complain(f"the end record cannot be written: {error}")
                time.sleep(_RETRY_SECONDS)
            else:
                break
        for _ in range(_REMOVE_TRIES):
            if remove_groups(self.groups):
                break
            time.sleep(_REMOVE_PAUSE_SECONDS)


def exit_code(status: int | None) -> int | None:
    """Return a wait status as people write it: the exit code, or 128 + n for signal n."""
    if status is None:
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def oom_kills(path: str) -> int:
    """Return how many processes the kernel killed for the group's memory limit (cgroup v1 and v2 files)."""
    if not path:
        return 0
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            words = [line.split() for line in file]
    except OSError:
        return 0
    return sum(int(word[1]) for word in words if word[:1] == [b"oom_kill"])


def main(directory: str) -> NoReturn:
    """Live one run in its directory."""
    os.chdir(directory)
    os.closerange(3, 1 << 16)
    order = record.read(ORDER)
    if order is None:
        sys.exit(f"no {ORDER} in {directory}")
    shim = Shim(order)
    shim.arm()
    become_reaper("divvy-shim")
    _lower_oom_score()
    try:
        fault = shim.begin()
    except OSError as error:
        # A disk quota is the submitter's own: the logs belong to them.
        of = "job" if error.errno == errno.EDQUOT else "engine"
        fault = Fault(of, 0, f"{error.filename or directory}: {error.strerror}")
    while fault is None:
        try:
            shim.watch()
        except Exception:  # noqa: BLE001 - a supervisor that dies takes the run with it
            sys.excepthook(*sys.exc_info())  # prints it; the module `traceback` costs 15 ms at start
            time.sleep(_RETRY_SECONDS)
        else:
            break
    shim.end(fault)
    os._exit(0)


def _complain(text: str) -> None:
    """Write to the shim's log, unless the disk refuses that as well."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode(errors="replace"))


def _lower_oom_score() -> None:
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:  # noqa: PTH123
            file.write(b"-900")
    except OSError:
        return  # only root may; then the shim takes its chance like everybody


def _drain(descriptor: int) -> bytes:
    """Return what a non-blocking pipe holds."""
    data = b""
    while True:
        try:
            part = os.read(descriptor, 65536)
        except BlockingIOError:
            return data
        if not part:
            return data
        data += part
