"""Starts and stops slice servers on loopback; each can be ended alone, all of them end with the lab."""

from __future__ import annotations

import json
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from divvy.adapters.lab import triton
from divvy.adapters.lab.quota import Quotas
from divvy.adapters.lab.spec import CPU, SLEEP, TRITON, SliceSpec, check_names
from divvy.errors import EngineError

_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 5.0
_BACKLOG: Final = 1024


@dataclass(frozen=True, slots=True)
class Running:
    """A slice server that runs.

    Attributes:
        spec: The slice.
        url: Where it listens.
        pid: Its process, which may hold other slices too.
    """

    spec: SliceSpec
    url: str
    pid: int

    @property
    def port(self) -> int:
        """Return its port on loopback."""
        return int(self.url.rpartition(":")[2])


class Lab:
    """Slice servers by name.

    Use as a context manager: at the end all processes that were started here end.
    """

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._slices: dict[str, Running] = {}
        self._quotas: Quotas | None = None

    def __enter__(self) -> Self:
        """Return the lab."""
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self.close()

    @property
    def slices(self) -> Mapping[str, Running]:
        """Return what runs, by name."""
        return self._slices

    def start(
        self, specs: Sequence[SliceSpec], *, apart: bool = False, ports: Sequence[int] = ()
    ) -> tuple[Running, ...]:
        """Start slice servers and return them once they listen.

        Args:
            specs: The slices.
            apart: Whether each has a process of its own (those that use the processor always have).
            ports: Their ports; free ones where none are given.

        Raises:
            EngineError: If one does not come up.
            UnavailableError: If quotas are asked for and cannot be had.
        """
        check_names([*(running.spec for running in self._slices.values()), *specs])
        if any(spec.work == CPU for spec in specs) and self._quotas is None:
            self._quotas = Quotas()
        wanted = list(ports) or [0] * len(specs)
        alone = apart or any(spec.work != SLEEP for spec in specs)
        groups = (
            [[pair] for pair in zip(specs, wanted, strict=True)]
            if alone
            else [list(zip(specs, wanted, strict=True))]
        )
        started: list[Running] = []
        for group in groups:
            if group:
                started += self._start(group)
        return tuple(started)

    def _start(self, group: Sequence[tuple[SliceSpec, int]]) -> list[Running]:
        if group[0][0].work == TRITON:
            return [self._start_triton(*group[0])]
        ears = [_listen(port) for _, port in group]
        try:
            rows = [
                {"spec": spec.to_json(), "descriptor": ear.fileno()}
                for (spec, _), ear in zip(group, ears, strict=True)
            ]
            command = [sys.executable, "-m", "divvy.adapters.lab.process"]
            process = self._run(command, json.dumps(rows).encode() + b"\n", [ear.fileno() for ear in ears])
            found = []
            for (spec, _), ear in zip(group, ears, strict=True):
                if spec.work == CPU and self._quotas is not None:
                    self._quotas.hold(process.pid, spec.name, spec.quota)
                found.append(self._note(spec, ear.getsockname()[1], process.pid))
            return found
        finally:
            for ear in ears:
                ear.close()

    def _start_triton(self, spec: SliceSpec, port: int) -> Running:
        python = triton.find_python()
        ear = _listen(port)
        port = ear.getsockname()[1]
        ear.close()  # Triton opens its ports itself
        process = self._run(triton.command(python), triton.order(spec, port), quiet=True)
        return self._note(spec, port, process.pid)

    def _note(self, spec: SliceSpec, port: int, pid: int) -> Running:
        running = Running(spec, f"http://127.0.0.1:{port}", pid)
        self._slices[spec.name] = running
        return running

    def _run(
        self, command: Sequence[str], order: bytes, descriptors: Sequence[int] = (), *, quiet: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start a process, give it its order, and wait until it serves."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            pass_fds=descriptors,
        )
        self._processes[process.pid] = process
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        process.stdin.write(order)
        process.stdin.flush()
        self._await(process)
        return process

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until a process says that it serves.

        Raises:
            EngineError: If it does not.
        """
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        ready, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
        if not ready or process.stdout.readline().strip() != b"calibrated":
            code = self._end(process)
            raise EngineError.one("lab-start", f"a slice server did not come up (exit code {code})")

    def stop(self, names: Sequence[str], *, at_once: bool = False) -> None:
        """End the processes of these slices, and with them what else they hold.

        Args:
            names: The slices.
            at_once: Whether to kill, as a crash would.
        """
        for pid in {self._slices[name].pid for name in names if name in self._slices}:
            process = self._processes[pid]
            if at_once:
                process.send_signal(signal.SIGKILL)
            self._end(process)
            self._slices = {name: one for name, one in self._slices.items() if one.pid != pid}

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        """End a process and return its exit code."""
        if process.stdin is not None:
            process.stdin.close()
        try:
            code = process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._processes.pop(process.pid, None)
        return code

    def close(self) -> None:
        """End every process that was started here."""
        for process in self._processes.values():
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()  # all of them begin to end at once
        for process in list(self._processes.values()):
            self._end(process)
        self._slices = {}
        if self._quotas is not None:
            self._quotas.close()
            self._quotas = None


def _listen(port: int) -> socket.socket:
    """Return a listening socket on loopback.

    Raises:
        EngineError: If the port is taken.
    """
    ear = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        ear.bind(("127.0.0.1", port))
    except OSError as error:
        ear.close()
        raise EngineError.one("lab-port", f"port {port} of 127.0.0.1: {error.strerror}") from error
    ear.listen(_BACKLOG)
    return ear
