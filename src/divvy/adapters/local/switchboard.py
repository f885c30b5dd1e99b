"""How the engine and its shims hear of each other: FIFOs, and one descriptor to wait on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import time
from pathlib import Path
from typing import Final, NamedTuple

from divvy.errors import ConflictError, UnavailableError

_LOCK_TRIES: Final = 40
_LOCK_WAIT_SECONDS: Final = 0.05


class Calls(NamedTuple):
    """What was heard: runs with a new record, and runs whose shim is gone."""

    news: list[str]
    gone: list[str]


class Switchboard:
    """Makes the engine's directory ready, keeps other engines out of it, and listens.

    Args:
        directory: Directory of the engine.

    Raises:
        UnavailableError: If the directory cannot be used.
        ConflictError: If another engine works in it.
    """

    def __init__(self, directory: Path) -> None:
        self.address = str(directory / "engine.fifo")
        self._lines: dict[str, int] = {}
        self._keys: dict[int, str] = {}
        self._shims: dict[str, int] = {}
        self._leaving: set[int] = set()
        try:
            for name in ("jobs", "live"):
                (directory / name).mkdir(mode=0o700, parents=True, exist_ok=True)
                (directory / name).chmod(0o700)
            self._lock = os.open(directory / "engine.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self.address, 0o600)
            self._ear = os.open(self.address, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise UnavailableError.one(
                "engine-directory",
                f"the local engine cannot use {error.filename or directory}: {error.strerror}",
                path="directory",
                fix="give it a writable directory on a local disk",
            ) from error
        self._seize(directory)
        self._poller = select.epoll()
        self._poller.register(self._ear, select.EPOLLIN)

    def _seize(self, directory: Path) -> None:
        for _ in range(_LOCK_TRIES):  # a shim being started holds the lock of a killed engine for a moment
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOCK_WAIT_SECONDS)
            else:
                return
        os.close(self._lock)
        os.close(self._ear)
        raise ConflictError.one(
            "engine-running",
            f"another engine works in {directory}",
            path="directory",
            fix="stop it, or use another directory",
        )

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when `calls` has something to report."""
        return self._poller.fileno()

    def connect(self, key: str, line: int, pid: int = 0) -> None:
        """Watch the line to a run's shim: a FIFO without a reader reports an error by itself.

        Args:
            key: Name of the run.
            line: Descriptor.
            pid: Process id of a shim that is a child of this process; 0 for an adopted one.
        """
        if pid:
            self._shims[key] = pid
        self._lines[key] = line
        self._keys[line] = key
        self._poller.register(line, 0)

    def disconnect(self, key: str) -> None:
        """Close the line to a run's shim, if there is one."""
        line = self._lines.pop(key, None)
        if line is not None:
            del self._keys[line]
            self._poller.unregister(line)
            os.close(line)
            if pid := self._shims.pop(key, 0):
                self._leaving.add(pid)

    def say(self, key: str, word: str) -> None:
        """Tell a run's shim something; without a line nothing happens."""
        line = self._lines.get(key)
        if line is None:
            return
        # EPIPE: the shim just died, and `calls` is about to say so. EAGAIN: it has orders enough to read.
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(line, f"{word}\n".encode())

    def calls(self) -> Calls:
        """Return what was heard since the last time; never waits."""
        heard = Calls([], [])
        for descriptor, _ in self._poller.poll(0):
            if descriptor == self._ear:
                heard.news.extend(self._listen())
            else:
                heard.gone.append(self._keys[descriptor])
        return heard

    def _listen(self) -> list[str]:
        data = b""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._ear, 65536):
                data += part
        return [word.decode("ascii", "replace") for word in data.split(b"\n") if word]

    def reap(self) -> bool:
        """Collect the shims of this process that have ended; return whether one is still about to."""
        for pid in list(self._leaving):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self._leaving.discard(pid)
        return bool(self._leaving)

    def close(self) -> None:
        """Hang up everywhere and let another engine in."""
        for key in list(self._lines):
            self.disconnect(key)
        self.reap()
        self._poller.close()
        os.close(self._ear)
        os.close(self._lock)
