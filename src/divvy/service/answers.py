"""HTTP answers: compact JSON with the age of its data, problems, and what is rendered once per state."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.responses import Response

from divvy.errors import DivvyError, Fault, UnauthenticatedError
from divvy.service.mirror import Mirror
from divvy.units import SECOND

PROBLEM: Final = "application/problem+json"


def dump(document: Any) -> bytes:
    """Return a document as compact JSON; a number that JSON has not is a fault of the program."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def answer(document: Mapping[str, Any], status: int = 200) -> Response:
    """Return a JSON answer."""
    return Response(dump(document), status, media_type="application/json")


def aged(document: Mapping[str, Any], as_of: int, now: int, status: int = 200) -> Response:
    """Return a JSON answer that says how old its data is (times in ms)."""
    return answer({**document, **_age(as_of, now)}, status)


def aged_bytes(rendered: bytes, as_of: int, now: int) -> Response:
    """Return a JSON answer from an object that is rendered already, with the age of its data put in front."""
    head = dump(_age(as_of, now))[:-1]
    return Response(head + b"," + rendered[1:], media_type="application/json")


def _age(as_of: int, now: int) -> dict[str, float]:
    return {"as_of": as_of / SECOND, "age_seconds": max(now - as_of, 0) / SECOND}


def problem(error: DivvyError) -> Response:
    """Return the answer of a refusal."""
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, UnauthenticatedError) else None
    return Response(dump(error.to_problem()), error.status, headers, media_type=PROBLEM)


def http_problem(status: int, code: str, message: str, allowed: str = "") -> Response:
    """Return the answer of a refusal that has no error class of its own, such as 405 or 413."""
    error = DivvyError(message, [Fault(code, "", message, allowed)])
    error.status = status
    return problem(error)


class Rendered:
    """Keeps the bytes of one answer for as long as the mirror does not move; only the age is put in anew.

    Args:
        mirror: What the answer shows.
        render: Makes the text of the answer at a time (ms); called once per generation of the mirror.
    """

    def __init__(self, mirror: Mirror, render: Callable[[int], bytes]) -> None:
        self._mirror = mirror
        self._render = render
        self._generation = -1
        self._bytes = b""

    def answer(self, now: int) -> Response:
        """Return the answer as it is now (``now`` in ms)."""
        if self._generation != self._mirror.generation:
            self._bytes = self._render(now)
            self._generation = self._mirror.generation
        return aged_bytes(self._bytes, self._mirror.seen().at, now)
