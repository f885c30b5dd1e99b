"""One host of a contender in the transfer benchmark: moves bytes when it is told to, and says when.

Runs in the namespace of its host as ``python -m divvy.cli.bench_transfers_station KIND``; speaks JSON lines
on standard input and output. Times are monotonic seconds, which all namespaces share.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

Job = dict[str, Any]
#: Between the pieces of a transfer, so that no library can join them.
GAP_BYTES: Final = 64
_NAP_SECONDS: Final = 0.0001
_LIMIT_SECONDS: Final = 60.0


class Driver(Protocol):
    """A library that moves bytes between hosts."""

    def meet(self, name: str, meta: str, address: int) -> None:
        """Learn of another host."""

    def prepare(self, job: Job) -> None:
        """Make ready what is not part of the transfer."""

    def start(self, job: Job) -> None:
        """Begin a transfer."""

    def done(self, job: Job) -> bool:
        """Return whether it has arrived."""


def pieces_of(job: Job) -> list[tuple[int, int, int]]:
    """Return (source offset, target offset, bytes) of each piece of a job."""
    count = int(job.get("pieces", 1))
    each, rest = divmod(int(job["bytes"]), count)
    out, source, target = [], int(job.get("source", 0)), int(job["offset"])
    for i in range(count):
        size = each + (i < rest)
        out.append((source, target, size))
        source, target = source + size + GAP_BYTES, target + size + GAP_BYTES
    return out


class Nixl:
    """NIXL with its UCX back end as it is; the environment says how many rails and which."""

    def __init__(self, name: str, buffer: NDArray[np.uint8]) -> None:
        library: Any = import_module("nixl_cu12._api")
        logging.disable(logging.INFO)
        self._agent: Any = library.nixl_agent(name, library.nixl_agent_config(backends=["UCX"]))
        self._base = buffer.ctypes.data
        self._registered = self._agent.register_memory([(self._base, buffer.nbytes, 0, "")], "DRAM")
        self._peers: dict[str, tuple[str, int]] = {}
        self.meta = base64.b64encode(self._agent.get_agent_metadata()).decode()
        self.address = self._base

    def meet(self, name: str, meta: str, address: int) -> None:
        """Learn of another host."""
        known = self._agent.add_remote_agent(base64.b64decode(meta))
        self._peers[name] = (known.decode() if isinstance(known, bytes) else known, address)

    def prepare(self, job: Job) -> None:
        """Make the descriptor lists, and ask NIXL what it expects."""
        peer, there = self._peers[job["to"]]
        parts = pieces_of(job)
        near = self._agent.get_xfer_descs([(self._base + s, size, 0) for s, _, size in parts], "DRAM")
        far = self._agent.get_xfer_descs([(there + t, size, 0) for _, t, size in parts], "DRAM")
        job["handle"] = self._agent.initialize_xfer("WRITE", near, far, peer)
        try:
            job["estimate_s"] = int(self._agent.estimate_xfer_cost(job["handle"])[0]) / 1e6
        except Exception:  # noqa: BLE001 - without a connection NIXL has no estimate
            job["estimate_s"] = None

    def start(self, job: Job) -> None:
        """Begin a transfer."""
        job["state"] = self._agent.transfer(job["handle"])

    def done(self, job: Job) -> bool:
        """Return whether it has arrived.

        Raises:
            RuntimeError: If NIXL says that it failed.
        """
        if job["state"] != "DONE":
            job["state"] = self._agent.check_xfer_state(job["handle"])
        if job["state"] == "ERR":
            raise RuntimeError("NIXL: the transfer failed")
        if job["state"] != "DONE":
            return False
        self._agent.release_xfer_handle(job.pop("handle"))
        return True


class Mooncake:
    """Mooncake's transfer engine over TCP; it binds to one address."""

    def __init__(self, name: str, buffer: NDArray[np.uint8]) -> None:
        del name
        self._engine: Any = import_module("mooncake.engine").TransferEngine()
        host = os.environ["STATION_ADDRESS"]
        if self._engine.initialize(host, "P2PHANDSHAKE", "tcp", "") != 0:
            raise RuntimeError("Mooncake: the engine cannot be started")
        self._base = buffer.ctypes.data
        if self._engine.register_memory(self._base, buffer.nbytes) != 0:
            raise RuntimeError("Mooncake: the buffer cannot be registered")
        self._peers: dict[str, tuple[str, int]] = {}
        self.meta = f"{host}:{self._engine.get_rpc_port()}"
        self.address = self._base

    def meet(self, name: str, meta: str, address: int) -> None:
        """Learn of another host."""
        self._peers[name] = (meta, address)

    def prepare(self, job: Job) -> None:
        """Do nothing: Mooncake takes addresses."""

    def start(self, job: Job) -> None:
        """Begin a transfer."""
        session, there = self._peers[job["to"]]
        parts = pieces_of(job)
        job["batch"] = self._engine.batch_transfer_async_write(
            session,
            [self._base + s for s, _, _ in parts],
            [there + t for _, t, _ in parts],
            [size for _, _, size in parts],
        )

    def done(self, job: Job) -> bool:
        """Return whether it has arrived.

        Raises:
            RuntimeError: If Mooncake says that it failed.
        """
        state = self._engine.get_batch_transfer_status([job["batch"]])
        if state != 0:
            raise RuntimeError(f"Mooncake: the transfer failed ({state})")
        return True


class Divvy:
    """Divvy's own agent; ``STATION_BACKEND`` names how the bytes go."""

    def __init__(self, name: str, buffer: NDArray[np.uint8]) -> None:
        library: Any = import_module("divvy.transfer")
        choose = import_module("divvy.transfer.interfaces").choose
        self._descriptor, self._wish = library.Descriptor, library.Wish
        wanted = [text for text in [os.environ.get("STATION_RAIL", "")] if text]
        rails = choose(wanted)
        self._agent: Any = library.Agent(name, b"key of the benchmark", rails)
        self._agent.register("all", buffer)
        self._backend = os.environ.get("STATION_BACKEND", "tcp")
        self._peers: dict[str, Any] = {}
        self.meta = json.dumps(self._agent.addresses)
        self.address = 0

    def meet(self, name: str, meta: str, address: int) -> None:
        """Learn of another host."""
        del address
        self._peers[name] = self._agent.connect(json.loads(meta), self._backend)

    def prepare(self, job: Job) -> None:
        """Make the descriptors."""
        job["parts"] = [self._descriptor(s, t, size) for s, t, size in pieces_of(job)]

    def start(self, job: Job) -> None:
        """Begin a transfer."""
        wish = self._wish(limit_s=_LIMIT_SECONDS)
        job["handle"] = self._agent.send("all", self._peers[job["to"]], "all", job.pop("parts"), wish)

    def done(self, job: Job) -> bool:
        """Return whether both sides have a verdict.

        Raises:
            RuntimeError: If the verdict is not that all has arrived.
        """
        try:
            report = job["handle"].wait(_NAP_SECONDS)
        except TimeoutError:
            return False
        del job["handle"]
        job["report"] = report
        job["estimate_s"] = report["prediction"]["seconds"]
        if report["verdict"] != "done" or report["lost_bytes"]:
            raise RuntimeError(f"Divvy: {report['verdict']}: {report['reason']}")
        return True

    def layered(self, job: Job, layers: int, each: int) -> Any:
        """Begin a transfer of which each layer waits for its release."""
        parts = [self._descriptor(i * each, job["offset"] + i * each, each) for i in range(layers)]
        wish = self._wish(limit_s=_LIMIT_SECONDS, layered=True)
        return self._agent.send("all", self._peers[job["to"]], "all", parts, wish)


def compute(seconds: float) -> None:
    """Multiply matrices for so much processor time."""
    matrix = np.ones((192, 192), np.float32)
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        matrix = (matrix @ matrix) / np.float32(matrix.shape[0])


DRIVERS: Final[dict[str, Callable[[str, NDArray[np.uint8]], Any]]] = {
    "nixl": Nixl,
    "mooncake": Mooncake,
    "divvy": Divvy,
}


class Station:
    """Answers what it is asked.

    Args:
        kind: The contender's library.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._driver: Any = None
        self._buffer: NDArray[np.uint8] = np.zeros(0, np.uint8)

    def open(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Start the library on a buffer: source bytes in its first half, room in its second."""
        size = int(ask["bytes"])
        self._buffer = np.zeros(2 * size, np.uint8)
        rng = np.random.default_rng(zlib.crc32(ask["name"].encode()))
        self._buffer[:size] = rng.integers(0, 256, size, dtype=np.uint8)
        self._driver = DRIVERS[self._kind](ask["name"], self._buffer)
        return {"meta": self._driver.meta, "address": self._driver.address}

    def meet(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Learn of another host."""
        self._driver.meet(ask["name"], ask["meta"], ask["address"])
        return {}

    def write(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Move bytes to other hosts, all jobs at once, from a given time on; `offset` counts in the room."""
        half = self._buffer.nbytes // 2
        jobs = [job | {"offset": half + int(job.get("offset", 0))} for job in ask["jobs"]]
        for job in jobs:
            self._driver.prepare(job)
        time.sleep(max(0.0, float(ask["at"]) - time.monotonic()))
        for job in jobs:
            job["start"] = time.monotonic()
            self._driver.start(job)
        self._finish(jobs)
        keys = ("start", "end", "estimate_s", "report")
        return {"jobs": [{key: job.get(key) for key in keys} for job in jobs]}

    def _finish(self, jobs: Sequence[Job]) -> None:
        waiting, limit = list(jobs), time.monotonic() + _LIMIT_SECONDS
        while waiting:
            for job in list(waiting):
                if self._driver.done(job):
                    job["end"] = time.monotonic()
                    waiting.remove(job)
            if time.monotonic() > limit:
                raise TimeoutError(f"{len(waiting)} transfers have not ended")
            time.sleep(_NAP_SECONDS)

    def layers(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Compute layers and send each when it is there (`early`), or all when the last one is.

        A layer's bytes are written when it has been computed, so that a transfer that is ahead of the
        computing would send wrong ones.
        """
        count, size, half = int(ask["layers"]), int(ask["bytes"]), self._buffer.nbytes // 2
        each = size // count
        job = {"to": ask["to"], "bytes": each * count, "offset": half}
        begin = time.monotonic()
        handle = self._driver.layered(job, count, each) if ask["early"] else None
        for layer in range(count):
            compute(float(ask["compute_s"]))
            self._buffer[layer * each : (layer + 1) * each] = layer + 1
            if handle is not None:
                handle.release(layer + 1)
        computed = time.monotonic()
        if handle is None:
            handle = self._driver.layered(job, count, each)
            handle.release(count)
        report = handle.wait(_LIMIT_SECONDS)
        return {"begin": begin, "computed": computed, "end": time.monotonic(), "report": report}

    def busy(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Compute for a while, as a decode server does that takes a cache in meanwhile."""
        compute(float(ask["seconds"]))
        return {}

    def sums(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Return the checksum of source bytes (`half` 0) or of the room (1)."""
        size = self._buffer.nbytes // 2
        start = size * int(ask["half"]) + int(ask.get("offset", 0))
        return {"sum": zlib.crc32(self._buffer[start : start + int(ask["bytes"])].data)}

    def clear(self, _ask: dict[str, Any]) -> dict[str, Any]:
        """Set the room to zero."""
        self._buffer[self._buffer.nbytes // 2 :] = 0
        return {}


def main() -> None:
    """Answer JSON lines until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print to standard output
    station = Station(sys.argv[1])
    known = {"open": station.open, "meet": station.meet, "write": station.write, "sums": station.sums,
             "clear": station.clear, "layers": station.layers, "busy": station.busy}  # fmt: skip
    for line in sys.stdin:
        ask = json.loads(line)
        try:
            answer = known[ask["op"]](ask)
        except Exception as error:  # noqa: BLE001 - the benchmark reports it as the contender's failure
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)
    os._exit(0)  # some of the libraries' threads never end


if __name__ == "__main__":
    main()
