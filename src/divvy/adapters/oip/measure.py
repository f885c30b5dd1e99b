"""Measures a server: each batch size several times, after a warm-up, one request at a time per process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import httpx

from divvy.adapters.oip.request import Tensor, build_infer, read_inputs
from divvy.errors import InputError, NotFoundError, UnavailableError

_WARM_UP: Final = 3
_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One batch size; latencies in milliseconds, None where the server refused the batch.

    Attributes:
        batch: Items per request.
        latency_ms: Median.
        p95_ms: 95th percentile (nearest rank).
        repeats: Requests that count.
        refusal: What the server said, where it refused.
    """

    batch: int
    latency_ms: float | None
    p95_ms: float | None
    repeats: int
    refusal: str = ""


class Server:
    """A model behind the Open Inference Protocol.

    Args:
        url: Address of the server, without ``/v2``.
        model: Name of the model.
        transport: For tests; the network where None.

    Raises:
        InputError: If the URL is none.
    """

    def __init__(self, url: str, model: str, transport: httpx.BaseTransport | None = None) -> None:
        try:
            self._client = httpx.Client(base_url=url.rstrip("/"), timeout=_SECONDS, transport=transport)
        except httpx.InvalidURL as error:
            raise InputError.one(
                "oip-url", f"{url!r}: {error}", path="--server", allowed="http://HOST:PORT"
            ) from error
        self._path = f"/v2/models/{model}"
        self._model, self._url = model, url

    def _call(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        try:
            return send()
        except httpx.HTTPError as error:
            raise UnavailableError.one(
                "oip-unreachable", f"{self._url}: {error}", path="--server", fix="is the server running?"
            ) from error

    def inputs(self) -> tuple[Tensor, ...]:
        """Return what the model wants.

        Raises:
            NotFoundError: If the server has no such model.
            UnavailableError: If it does not answer.
            EngineError: If its answer is no metadata.
        """
        answer = self._call(lambda: self._client.get(self._path))
        if answer.status_code != httpx.codes.OK:
            raise NotFoundError.one(
                "oip-model",
                f"{self._url} has no model {self._model!r} ({answer.status_code})",
                path="--model",
            )
        return read_inputs(answer.text)

    def infer(self, body: dict[str, Any]) -> str:
        """Run one request; return nothing, or why the server refused it."""
        answer = self._call(lambda: self._client.post(f"{self._path}/infer", json=body))
        return "" if answer.status_code == httpx.codes.OK else f"{answer.status_code}: {answer.text[:200]}"

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def measure(
    server: Server,
    batches: Sequence[int],
    repeats: int,
    *,
    at_once: int = 1,
    free: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Measured, ...]:
    """Return the latency of every batch size.

    Args:
        server: The server.
        batches: Batch sizes.
        repeats: Requests per batch size and connection.
        at_once: Requests in flight: as many as server processes share the slice.
        free: Size of free dimensions other than the batch.
        clock: Seconds.

    Raises:
        NotFoundError: If the server has no such model.
        UnavailableError: If it does not answer.
        InputError: If the model cannot take such batches at all.
    """
    inputs = server.inputs()
    found = []
    for batch in batches:
        body = build_infer(inputs, batch, free)
        refusal = next((words for _ in range(_WARM_UP) if (words := server.infer(body))), "")
        if refusal:
            found.append(Measured(batch, None, None, 0, refusal))
            continue

        def timed(_: int, body: dict[str, Any] = body) -> tuple[float, str]:
            start = clock()
            words = server.infer(body)
            return (clock() - start) * 1e3, words

        with ThreadPoolExecutor(at_once) as pool:
            results = list(pool.map(timed, range(repeats * at_once)))
        refused = next((words for _, words in results if words), "")
        times = sorted(took for took, words in results if not words)
        if refused:
            found.append(Measured(batch, None, None, len(times), refused))
            continue
        p95 = times[max(0, -(-len(times) * 95 // 100) - 1)]
        found.append(Measured(batch, times[(len(times) - 1) // 2], p95, len(times)))
    return tuple(found)
