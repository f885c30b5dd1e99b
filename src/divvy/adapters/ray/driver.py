"""What runs inside Ray for one run of a job: makes its placement group, runs the command, ends it.

Ray executes the text of this file as the entry point of a Ray job, so it uses nothing of Divvy: the standard
library and Ray only. Its order comes in ``DIVVY_ORDER``. SIGTERM, which is what a stop of the Ray job sends,
begins the way out: warning, grace, SIGTERM, grace, SIGKILL. Its last line says how the run ended.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

VERDICT = "divvy-verdict "
#: Exit code of a driver whose command never began (EX_TEMPFAIL).
NOT_BEGUN = 75
_OWN = ("DIVVY_DRIVER", "DIVVY_ORDER", "RAY_JOB_STOP_WAIT_TIME_S", "RAY_JOB_CONFIG_JSON_ENV_VAR")
_LOOK_SECONDS = 0.2

#: Kills what is left of a command when the process that ran it is gone without having said "done".
_WATCH = """
import os, signal, sys
if os.fork():
    os._exit(0)
os.setsid()
if not sys.stdin.buffer.read():
    try:
        os.killpg(int(sys.argv[1]), signal.SIGKILL)
    except ProcessLookupError:
        sys.exit()
"""


class DivvyRank:
    """The command on one node of the placement: an actor that holds the node's devices.

    Args:
        order: The order of the run.
        rank: Place of the node in the placement.
    """

    def __init__(self, order: Mapping[str, Any], rank: int) -> None:
        self._order = order
        self._rank = rank
        self._process: subprocess.Popen[bytes] | None = None

    def address(self) -> str:
        """Return the address of its node."""
        return str(ray.util.get_node_ip_address())

    def run(self, head: str) -> Iterator[bytes | int]:
        """Yield what the command prints, and at last its exit code, 128 + n after signal n."""
        order = self._order
        devices = ",".join(str(each) for each in ray.get_gpu_ids())
        own = {"DIVVY_RANK": str(self._rank), "DIVVY_HEAD_ADDRESS": head, "DIVVY_DEVICES": devices}
        kept = {key: value for key, value in os.environ.items() if key not in _OWN}
        ours = {key: value for key, value in kept.items() if key.startswith(("RAY_", "CUDA_"))}
        env = {**kept, **dict(order["env"]), **ours, **own}
        try:
            process = subprocess.Popen(
                order["argv"],
                cwd=order["cwd"],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            yield f"divvy: {error.filename or order['argv'][0]}: {error.strerror}\n".encode()
            yield 127
            return
        self._process = process
        watch = subprocess.Popen(
            [sys.executable, "-c", _WATCH, str(process.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        yield from self._output(process)
        self.tell(signal.SIGKILL, whole=True)  # what the command left behind
        if watch.stdin is not None:
            watch.stdin.write(b"done")
            watch.stdin.close()
        watch.wait()
        code = process.wait()
        yield code if code >= 0 else 128 - code

    @staticmethod
    def _output(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
        """Yield what it prints until it is gone; what it left running does not prolong it."""
        pipe = process.stdout
        if pipe is None:
            return
        gone = False
        while True:
            ready, _, _ = select.select([pipe], [], [], 0 if gone else _LOOK_SECONDS)
            data = os.read(pipe.fileno(), 65_536) if ready else b""
            if data:
                yield data
            elif ready or gone:
                return
            else:
                gone = process.poll() is not None

    def tell(self, number: int, *, whole: bool) -> None:
        """Send a signal to the command's main process, or to all of its group."""
        if self._process is not None:
            try:
                (os.killpg if whole else os.kill)(self._process.pid, number)
            except ProcessLookupError:
                return


class Driver:
    """One run.

    Args:
        order: What to run, where, and how it is ended.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._order = order
        self._asked = False
        self._rung = "RUN"
        self._due = 0.0
        self._end = "exit"
        self._codes: list[int] = []
        self._head = ""
        self._said: list[Any] = []
        self._ranks: list[Any] = []
        signal.signal(signal.SIGTERM, lambda *_: self._ask())

    def run(self) -> int:
        """Run it all; return the exit code."""
        group = self._group()
        try:
            if not self._begin(group):
                return self._close(None, "start")
            return self._follow()
        finally:
            remove_placement_group(group)

    def _ask(self) -> None:
        self._asked = True

    def _group(self) -> PlacementGroup:
        nodes = self._order["nodes"]
        group: PlacementGroup = placement_group(
            [{"GPU": count} for _, count in nodes],
            strategy="STRICT_PACK" if len(nodes) == 1 else "STRICT_SPREAD",
            name=self._order["run"],
            bundle_label_selector=[{"ray.io/node-id": node} for node, _ in nodes],
        )
        return group

    def _begin(self, group: PlacementGroup) -> bool:
        """Wait for all devices and begin on all nodes; return whether that came to pass."""
        give_up = time.monotonic() + self._order["patience_seconds"]
        while not group.wait(timeout_seconds=_LOOK_SECONDS):
            if self._asked or time.monotonic() > give_up:
                return False
        once = self._order["once"]
        maker = ray.remote(DivvyRank)
        for rank, (_, count) in enumerate(self._order["nodes"][:1] if once else self._order["nodes"]):
            strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
            options = {"num_cpus": 0, "num_gpus": 0 if once else count, "max_concurrency": 4}
            name = f"{self._order['run']}#{rank}"
            actor = maker.options(scheduling_strategy=strategy, name=name, **options)
            self._ranks.append(actor.remote(self._order, rank))
        waiting = [rank.address.remote() for rank in self._ranks]
        ready: list[Any] = []
        while len(ready) < len(self._ranks):
            ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=_LOOK_SECONDS)
            if self._asked or time.monotonic() > give_up:
                return False
        self._head = ray.get(waiting)[0]
        return True

    def _follow(self) -> int:
        streams = [rank.run.options(num_returns="streaming").remote(self._head) for rank in self._ranks]
        limit = self._order["limit_seconds"]
        ends = time.monotonic() + limit if limit else 0.0
        while streams:
            ready, _ = ray.wait(streams, timeout=_LOOK_SECONDS)
            for stream in ready:
                if not self._take(stream):
                    streams.remove(stream)
            now = time.monotonic()
            if self._rung == "RUN" and ends and now > ends:
                self._end = "limit"
                self._climb("TERM", now)
            self._ladder(now)
        return self._close(next((code for code in self._codes if code), 0), self._end)

    def _take(self, stream: Any) -> bool:
        """Pass on what a rank has to say; return whether it may say more."""
        try:
            item = ray.get(next(stream))
        except StopIteration:
            return False
        except RayError:
            self._codes.append(1)
            if self._end == "exit" and self._rung == "RUN":
                self._end = "lost"
            self._leave()
            return False
        if isinstance(item, int):
            self._codes.append(item)
            if item:
                self._leave()  # one failed member stops all
        else:
            sys.stdout.buffer.write(item)
            sys.stdout.flush()
        return True

    def _leave(self) -> None:
        if self._rung in ("RUN", "WARN"):
            self._climb("TERM", time.monotonic())

    def _ladder(self, now: float) -> None:
        if self._asked and self._rung == "RUN":
            self._climb("WARN" if self._order["warn_seconds"] else "TERM", now)
        elif self._rung in ("WARN", "TERM") and now >= self._due:
            self._climb("TERM" if self._rung == "WARN" else "KILL", now)

    def _climb(self, rung: str, now: float) -> None:
        """Send the signal of a rung to every rank."""
        self._rung = rung
        self._due = now + self._order["warn_seconds" if rung == "WARN" else "grace_seconds"]
        number = {"WARN": self._order["warn_signal"], "TERM": signal.SIGTERM, "KILL": signal.SIGKILL}[rung]
        self._said += [rank.tell.remote(int(number), whole=rung != "WARN") for rank in self._ranks]

    def _close(self, code: int | None, end: str) -> int:
        """Say how it ended, in the last line."""
        said = {"exit": code, "end": end, "rung": self._rung}
        sys.stdout.write(f"\n{VERDICT}{json.dumps(said)}\n")
        sys.stdout.flush()
        return NOT_BEGUN if code is None else code


def main() -> None:
    """Run the order in the environment."""
    order = json.loads(zlib.decompress(base64.b64decode(os.environ["DIVVY_ORDER"])))
    ray.init(namespace="divvy", log_to_driver=False, logging_level=logging.ERROR)
    sys.exit(Driver(order).run())


if __name__ == "__main__":
    main()
