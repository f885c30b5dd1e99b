"""A second opinion: the MLPerf load generator's Server scenario against the same servers.

MLCommons' generator (``mlcommons-loadgen``) draws its own Poisson arrivals and counts latency from the
scheduled arrival too. It keeps its state in the process, so it runs in one of its own: this module is that
process, and the functions that start it and read its summary.
"""

from __future__ import annotations

import array
import json
import queue
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from divvy.adapters.load.volley import infer_body
from divvy.errors import EngineError, UnavailableError

_WORKERS: Final = 96
_GRACE_SECONDS: Final = 120.0
#: Lines of the summary: name to (pattern, factor to milliseconds or 1).
_LINES: Final = {
    "p50_ms": (r"50\.00 percentile latency \(ns\)\s*:\s*(\d+)", 1e-6),
    "p95_ms": (r"95\.00 percentile latency \(ns\)\s*:\s*(\d+)", 1e-6),
    "p99_ms": (r"99\.00 percentile latency \(ns\)\s*:\s*(\d+)", 1e-6),
    "scheduled_qps": (r"Scheduled samples per second\s*:\s*([\d.]+)", 1.0),
}
_VERDICT: Final = re.compile(r"Result is\s*:\s*(VALID|INVALID)")


def run_server_scenario(
    url: str, path: str, batches: Sequence[int], rate_qps: float, slo_ms: float, seconds: float
) -> dict[str, Any]:
    """Return what the generator says: percentiles, ``scheduled_qps``, ``valid``, and ``failed`` queries.

    Args:
        url: ``http://HOST:PORT``.
        path: Path of inference requests.
        batches: Items of each query in its library: drawn from at random.
        rate_qps: Target rate.
        slo_ms: Objective: its 99th percentile must be below for a valid result.
        seconds: Least duration.

    Raises:
        UnavailableError: If the generator is not installed.
        EngineError: If it fails.
    """
    if find_spec("mlperf_loadgen") is None:
        raise UnavailableError.one(
            "mlperf-missing", "mlcommons-loadgen is not installed", fix="pip install mlcommons-loadgen"
        )
    with tempfile.TemporaryDirectory() as home:
        order = {
            "url": url,
            "path": path,
            "batches": [int(batch) for batch in batches],
            "rate_qps": rate_qps,
            "slo_ms": slo_ms,
            "seconds": seconds,
            "home": home,
        }
        try:
            done = subprocess.run(
                [sys.executable, "-m", "divvy.adapters.load.mlperf"],
                input=json.dumps(order),
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds * 3 + _GRACE_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise EngineError.one("mlperf", "the generator did not end") from error
        summary = Path(home) / "mlperf_log_summary.txt"
        if done.returncode or not summary.exists():
            raise EngineError.one("mlperf", f"the generator failed: {done.stderr[-500:]}")
        found = read_summary(summary.read_text(encoding="utf-8", errors="replace"))
        return {**found, "failed": int(done.stdout)}


def read_summary(text: str) -> dict[str, Any]:
    """Return the figures in a summary of the Server scenario.

    Raises:
        EngineError: If it is none.
    """
    found: dict[str, Any] = {}
    for name, (pattern, factor) in _LINES.items():
        match = re.search(pattern, text)
        if match is None:
            raise EngineError.one("mlperf", f"no {name} in the summary of the generator")
        found[name] = float(match[1]) * factor
    verdict = _VERDICT.search(text)
    return {**found, "valid": verdict is not None and verdict[1] == "VALID"}


class _System:
    """The system under test: threads that send what the generator issues."""

    def __init__(self, generator: Any, order: Mapping[str, Any]) -> None:
        self._generator, self._order = generator, order
        self._queue: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
        self.failed = 0
        self._bodies = {batch: infer_body(batch) for batch in set(order["batches"])}
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(_WORKERS)]
        for thread in self._threads:
            thread.start()

    def issue(self, samples: Sequence[Any]) -> None:
        """Take queries from the generator."""
        for sample in samples:
            self._queue.put((sample.id, self._order["batches"][sample.index]))

    def _work(self) -> None:
        host, _, port = self._order["url"].removeprefix("http://").rpartition(":")
        wire = HTTPConnection(host, int(port), timeout=30)
        while (item := self._queue.get()) is not None:
            number, batch = item
            headers = {"Content-Type": "application/json", "Divvy-Batch": str(batch)}
            try:
                wire.request("POST", self._order["path"], self._bodies[batch], headers)
                answered = wire.getresponse()
                answered.read()
                self.failed += answered.status != 200
            except (OSError, HTTPException):
                wire.close()  # the next query opens a new connection
                self.failed += 1
            answer = array.array("B", b"\0" * 4)
            where, size = answer.buffer_info()
            response = self._generator.QuerySampleResponse(number, where, size)
            self._generator.QuerySamplesComplete([response])

    def close(self) -> None:
        """End the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(timeout=2)


def main() -> None:
    """Run the scenario that standard input describes."""
    generator = import_module("mlperf_loadgen")
    order = json.loads(sys.stdin.read())
    settings = generator.TestSettings()
    settings.scenario = generator.TestScenario.Server
    settings.mode = generator.TestMode.PerformanceOnly
    settings.server_target_qps = order["rate_qps"]
    settings.server_target_latency_ns = round(order["slo_ms"] * 1e6)
    settings.server_target_latency_percentile = 0.99
    settings.min_duration_ms = round(order["seconds"] * 1e3)
    settings.min_query_count = max(100, round(order["seconds"] * order["rate_qps"]))
    log = generator.LogSettings()
    output = generator.LogOutputSettings()
    output.outdir, output.copy_summary_to_stdout = order["home"], False
    log.log_output = output
    system = _System(generator, order)
    count = len(order["batches"])
    under_test = generator.ConstructSUT(system.issue, _nothing)
    library = generator.ConstructQSL(count, count, _ignore, _ignore)
    generator.StartTestWithLogSettings(under_test, library, settings, log)
    system.close()
    generator.DestroyQSL(library)
    generator.DestroySUT(under_test)
    sys.stdout.write(str(system.failed))


def _nothing() -> None:
    """Flush nothing: queries are sent as they come."""


def _ignore(_: object) -> None:
    """Load nothing: bodies are made once."""


if __name__ == "__main__":
    main()
