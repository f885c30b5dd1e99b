"""A real Ray Serve in a network namespace of its own; its replicas are slices of the lab; sends plans there.

Run as a process: the first line of standard input says what to deploy, each further one is a plan. Ray takes
the machine's own address, and hangs where that is forced to loopback; in a namespace that has only ``lo`` it
comes up on it.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Final, Self

from divvy.errors import EngineError, UnavailableError

_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 20.0
_PORT: Final = 8011
_STORE_BYTES: Final = 100 << 20
_SETTLE_SECONDS: Final = 2.0


def missing() -> str:
    """Return why a stand cannot be had on this machine; empty where it can."""
    if find_spec("ray") is None:
        return "Ray is not installed: pip install divvy-gpu[ray]"
    if not shutil.which("unshare") or not shutil.which("ip"):
        return "unshare and ip are not installed: apt-get install util-linux iproute2"
    if os.geteuid() != 0:
        return "only root can make a network namespace"
    return ""


class Stand:
    """Ray Serve with a replica per slice, and a generator beside it; for the time of a block.

    Args:
        order: What to deploy: ``slices`` (MIG profiles), ``times_us`` by profile and batch, ``name`` of the
            model, ``router`` (keyword arguments of a RequestRouterConfig; empty for Serve's own router).

    Raises:
        UnavailableError: If it cannot be had here.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        why = missing()
        if why:
            raise UnavailableError.one("rayserve-stand", why)
        self._order = order
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Start everything.

        Raises:
            EngineError: If it does not come up.
        """
        inner = f"ip link set lo up && exec {sys.executable} -m divvy.bootstrap.ray_stand"
        self._process = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", inner],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        )
        try:
            answer = self.ask(self._order)
        except EngineError:
            self.__exit__(None, None, None)
            raise
        if "ready" not in answer:
            self.__exit__(None, None, None)
            raise EngineError.one("rayserve-stand", f"Ray Serve did not come up: {answer.get('error')}")
        return self

    def ask(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Write a line and return the answer to it.

        Raises:
            EngineError: If the process has gone.
        """
        assert self._process is not None and self._process.stdin and self._process.stdout  # noqa: S101, PT018 - in the block
        try:
            self._process.stdin.write(json.dumps(document) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError as error:
            raise EngineError.one("rayserve-stand", f"the process has gone: {error}") from error
        if not line:
            raise EngineError.one("rayserve-stand", "the process has gone")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def make_replica(times_us: Mapping[str, Sequence[int]], line: Callable[[], Any]) -> type:
    """Return the class of a replica: a slice of the lab, slept (emulated), one query at a time.

    Args:
        times_us: By MIG profile and batch.
        line: Makes the model instance.
    """
    from divvy.adapters.rayserve.replica import SliceReplica  # noqa: PLC0415 - pickled with the class

    class Replica(SliceReplica):
        """One slice."""

        def __init__(self) -> None:
            super().__init__()
            self._times = times_us[self.slice_profile]
            self._line = line()

        async def __call__(self, request: Any) -> dict[str, Any]:
            """Serve one query of an HTTP request that names its batch."""
            batch = int(request.headers["divvy-batch"])
            await self._line.serve(batch, self._times[batch])
            return {"model_name": "ray", "outputs": []}

    return Replica


def deploy(order: Mapping[str, Any], line: Callable[[], Any]) -> Callable[[], None]:
    """Start a cluster of one fake-GPU node with the slices, deploy, and return what ends it."""
    ray, serve = import_module("ray"), import_module("ray.serve")
    cluster = import_module("ray.cluster_utils").Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 4,
            "object_store_memory": _STORE_BYTES,
            "include_dashboard": False,
        },
    )
    slices = list(order["slices"])
    cluster.add_node(
        num_cpus=4,
        num_gpus=len(slices),
        object_store_memory=_STORE_BYTES,
        env_vars={"DIVVY_SLICES": ",".join(slices)},
    )
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    serve.start(http_options={"host": "127.0.0.1", "port": _PORT})
    more = {"request_router_config": order["router"]} if order["router"] else {}
    if order.get("max_ongoing_requests"):
        more["max_ongoing_requests"] = order["max_ongoing_requests"]
    deployment = serve.deployment(
        num_replicas=len(slices), ray_actor_options={"num_cpus": 0.05, "num_gpus": 1}, **more
    )(make_replica(order["times_us"], line))
    serve.run(deployment.bind(), name=order["name"], route_prefix="/")
    time.sleep(_SETTLE_SECONDS)  # until every replica has published its slice

    def end() -> None:
        serve.shutdown()
        ray.shutdown()
        cluster.shutdown()

    return end


def converse(line: Callable[[], Any], fire: Callable[[str, Mapping[str, Any]], dict[str, Any]]) -> None:
    """Deploy what the first line of standard input says, then send what each further one says.

    Args:
        line: Makes the model instance of a replica.
        fire: Sends a plan to a URL and returns what became of it.
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints must not come between the answers

    def tell(document: Mapping[str, Any]) -> None:
        out.write(json.dumps(document) + "\n")
        out.flush()

    try:
        end = deploy(json.loads(sys.stdin.readline()), line)
    except Exception as error:  # noqa: BLE001 - whatever Ray raises is told to the one who waits
        tell({"error": f"{type(error).__name__}: {error}"})
        return
    try:
        tell({"ready": True})
        for text in sys.stdin:
            tell(fire(f"http://127.0.0.1:{_PORT}", json.loads(text)))
    finally:
        end()
