"""The contenders of the transfer benchmark: one process per host, started in the hosts of a lab."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import divvy
from divvy.adapters.rails.fabric import Fabric

_START_SECONDS: Final = 60.0
_AHEAD_SECONDS: Final = 0.02
_WAKE_BYTES: Final = 64 * 1024


class Contender(NamedTuple):
    """Somebody who moves bytes.

    Attributes:
        label: Name in the rows.
        kind: Library.
        env: Its settings.
        module: Package that it needs.
    """

    label: str
    kind: str
    env: Mapping[str, str]
    module: str


#: UCX would take shared memory between the namespaces of one kernel; across machines there is none.
_TCP: Final = {"UCX_TLS": "tcp", "UCX_LOG_LEVEL": "fatal", "NIXL_LOG_LEVEL": "ERROR"}

NIXL_DEFAULT: Final = Contender("NIXL/UCX, default", "nixl", _TCP, "nixl_cu12")
NIXL_TUNED: Final = Contender(
    "NIXL/UCX, two rails (UCX_MAX_RNDV_RAILS=2, UCX_MAX_RMA_RAILS=2)",
    "nixl",
    {**_TCP, "UCX_NET_DEVICES": "e0,e1", "UCX_MAX_RNDV_RAILS": "2", "UCX_MAX_RMA_RAILS": "2"},
    "nixl_cu12",
)
NIXL_SINGLE: Final = Contender(
    "NIXL/UCX, best single rail (UCX_NET_DEVICES=e0)", "nixl", {**_TCP, "UCX_NET_DEVICES": "e0"}, "nixl_cu12"
)
MOONCAKE: Final = Contender("Mooncake TCP", "mooncake", {"MC_LOG_LEVEL": "ERROR"}, "mooncake")
DIVVY_TCP: Final = Contender("divvy, TCP", "divvy", {"STATION_BACKEND": "tcp"}, "divvy.transfer")
DIVVY_NIXL: Final = Contender(
    "divvy, through NIXL", "divvy", {**_TCP, "STATION_BACKEND": "nixl"}, "nixl_cu12"
)


class Move(NamedTuple):
    """A transfer to be made: hosts by number, and where in the receiver's room it goes."""

    source: int
    target: int
    size_bytes: int
    pieces: int = 1
    offset: int = 0


class Moved(NamedTuple):
    """A transfer that was made; monotonic seconds."""

    start: float
    end: float
    estimate_s: float | None
    report: dict[str, Any] | None

    @property
    def seconds(self) -> float:
        """Return how long it took."""
        return self.end - self.start


class CrewError(Exception):
    """A contender could not do what it was asked."""


class _Process:
    """The process of one host."""

    def __init__(self, fabric: Fabric, host: int, contender: Contender, *, loopback: bool) -> None:
        source = str(Path(divvy.__file__).parents[1])
        env = {
            **os.environ,
            **contender.env,
            **({"UCX_NET_DEVICES": "lo", "STATION_RAIL": "127.0.0.1"} if loopback else {}),
            "STATION_ADDRESS": "127.0.0.1" if loopback else fabric.address(host, 0),
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH")))),
        }
        self._label = f"{contender.label}, h{host}"
        self._process = subprocess.Popen(
            [
                *fabric.enter(0 if loopback else host),
                sys.executable,
                "-m",
                "divvy.cli.bench_transfers_station",
                contender.kind,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
        )

    def tell(self, ask: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        try:
            self._process.stdin.write(json.dumps(ask).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise CrewError(f"{self._label}: its process has ended") from error

    def hear(self, seconds: float) -> dict[str, Any]:
        """Return its next answer."""
        assert self._process.stdout is not None  # noqa: S101 - same
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            if not waiting.select(seconds):
                raise CrewError(f"{self._label}: no answer within {seconds:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise CrewError(f"{self._label}: its process has ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise CrewError(f"{self._label}: {answer['error']}")
        return answer

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def close(self) -> None:
        assert self._process.stdin is not None  # noqa: S101 - same
        assert self._process.stdout is not None  # noqa: S101 - same
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Crew:
    """A contender on the hosts of a lab.

    Args:
        fabric: The lab.
        contender: Who.
        size_bytes: Room on each host, and as many source bytes.
        hosts: Which hosts; none means all.
        loopback: Whether all processes are on the first host and speak over its loopback.

    Raises:
        CrewError: If it cannot be started.
    """

    def __init__(
        self,
        fabric: Fabric,
        contender: Contender,
        size_bytes: int,
        hosts: Sequence[int] = (),
        *,
        loopback: bool = False,
    ) -> None:
        self.contender = contender
        self._at = {
            host: _Process(fabric, host, contender, loopback=loopback)
            for host in hosts or range(fabric.hosts)
        }
        try:
            self._meet(size_bytes)
        except BaseException:
            self.close()
            raise

    def _meet(self, size_bytes: int) -> None:
        opened: dict[int, dict[str, Any]] = {}
        for host, process in self._at.items():
            process.tell({"op": "open", "name": f"h{host}", "bytes": size_bytes})
        for host, process in self._at.items():
            opened[host] = process.hear(_START_SECONDS)
        for host, process in self._at.items():
            for other, found in opened.items():
                if other != host:
                    process.tell({"op": "meet", "name": f"h{other}", **found})
                    process.hear(_START_SECONDS)

    def turn(self, moves: Sequence[Move]) -> list[Moved]:
        """Wake, make transfers, rest again: a turn among contenders that share a machine."""
        self.wake()
        try:
            return self.run(moves)
        finally:
            self.rest()

    def run(self, moves: Sequence[Move], *, seconds: float = 90.0) -> list[Moved]:
        """Make transfers, all at once, and return them in their order."""
        self.begin(moves)
        return self.finish(moves, seconds=seconds)

    def begin(self, moves: Sequence[Move]) -> float:
        """Have transfers begin a moment from now, and return that moment (monotonic seconds)."""
        at = time.monotonic() + _AHEAD_SECONDS
        for host, mine in self._by_source(moves).items():
            jobs = [
                {"to": f"h{moves[i].target}", "bytes": moves[i].size_bytes, "pieces": moves[i].pieces,
                 "offset": moves[i].offset}
                for i in mine
            ]  # fmt: skip
            self._at[host].tell({"op": "write", "at": at, "jobs": jobs})
        return at

    def finish(self, moves: Sequence[Move], *, seconds: float = 90.0) -> list[Moved]:
        """Return the transfers that have begun once they have ended, in their order."""
        out: dict[int, Moved] = {}
        for host, mine in self._by_source(moves).items():
            answer = self._at[host].hear(seconds)
            for i, job in zip(mine, answer["jobs"], strict=True):
                out[i] = Moved(job["start"], job["end"], job["estimate_s"], job["report"])
        return [out[i] for i in range(len(moves))]

    @staticmethod
    def _by_source(moves: Sequence[Move]) -> dict[int, list[int]]:
        out: dict[int, list[int]] = {}
        for i, move in enumerate(moves):
            out.setdefault(move.source, []).append(i)
        return out

    def layers(self, move: Move, layers: int, compute_s: float, *, early: bool) -> dict[str, Any]:
        """Compute and send a transfer layer by layer, or all at the end; the receiver computes meanwhile."""
        ask = {"op": "layers", "to": f"h{move.target}", "bytes": move.size_bytes, "layers": layers,
               "compute_s": compute_s, "early": early}  # fmt: skip
        self._at[move.target].tell({"op": "busy", "seconds": layers * compute_s})
        answer = self._ask(move.source, ask)
        self._at[move.target].hear(_START_SECONDS)
        return answer

    def whole(self, move: Move) -> bool:
        """Return whether the bytes of a transfer in one piece are there as they were sent."""
        for process in self._at.values():
            process.signal(signal.SIGCONT)
        sent = self._ask(move.source, {"op": "sums", "half": 0, "bytes": move.size_bytes})
        came = self._ask(
            move.target, {"op": "sums", "half": 1, "bytes": move.size_bytes, "offset": move.offset}
        )
        return bool(sent["sum"] == came["sum"])

    def clear(self) -> None:
        """Set the rooms of all hosts to zero."""
        for host in self._at:
            self._ask(host, {"op": "clear"})

    def _ask(self, host: int, ask: Mapping[str, Any]) -> dict[str, Any]:
        self._at[host].tell(ask)
        return self._at[host].hear(_START_SECONDS)

    def rest(self) -> None:
        """Stop all processes of a peer: NIXL looks for work without pause, an eighth of a core each.

        Divvy's agents sleep by themselves; stopped, they would take the silence for broken rails.
        """
        if self.contender.kind == "divvy":
            return
        for process in self._at.values():
            process.signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let all processes go on, and move a few bytes between all hosts so that connections stand."""
        for process in self._at.values():
            process.signal(signal.SIGCONT)
        room = _WAKE_BYTES * len(self._at)
        self.run(
            [
                Move(a, b, _WAKE_BYTES, offset=i * _WAKE_BYTES % room)
                for b in self._at
                for i, a in enumerate(self._at)
                if a != b
            ]
        )

    def close(self) -> None:
        """End all processes."""
        for process in self._at.values():
            process.signal(signal.SIGCONT)
        for process in self._at.values():
            process.close()

    def __enter__(self) -> Self:
        """Return the crew."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        self.close()


def makespan(moved: Sequence[Moved]) -> float:
    """Return the time from the first start to the last end."""
    return max(m.end for m in moved) - min(m.start for m in moved)


def has(contender: Contender) -> bool:
    """Return whether the package of a contender is installed."""
    try:
        return find_spec(contender.module) is not None
    except ModuleNotFoundError:
        return False


@contextlib.contextmanager
def crews(
    fabric: Fabric, contenders: Sequence[Contender], size_bytes: int, hosts: Sequence[int] = ()
) -> Iterator[tuple[dict[str, Crew], dict[str, str]]]:
    """Yield the crews that could be started, by label, and why the others could not; end them after."""
    started: dict[str, Crew] = {}
    lacking: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        for contender in contenders:
            if not has(contender):
                lacking[contender.label] = f"package {contender.module} is not installed"
                continue
            try:
                crew = stack.enter_context(Crew(fabric, contender, size_bytes, hosts))
            except CrewError as error:
                lacking[contender.label] = str(error)
                continue
            crew.rest()
            started[contender.label] = crew
        yield started, lacking
