"""Faults that people can act on: a stable code, where, what was asked, what is allowed, what to do.

One hierarchy serves the command line (text and exit code) and the HTTP API (RFC 9457 problem+json).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_DENIED: Final = 4
EXIT_NOT_FOUND: Final = 5
EXIT_CONFLICT: Final = 6

_HTTP_TO_EXIT: Final = {
    401: EXIT_DENIED,
    403: EXIT_DENIED,
    404: EXIT_NOT_FOUND,
    409: EXIT_CONFLICT,
    503: EXIT_UNREACHABLE,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, and where.

    Attributes:
        code: Stable word, such as ``share-sum``; the same on the command line and in the API.
        path: Where, as a dotted path, ``FILE:LINE`` or an option name; empty where there is no place.
        message: What is wrong, with the value that was given.
        allowed: What would be accepted.
        fix: What to do next.
    """

    code: str
    path: str
    message: str
    allowed: str = ""
    fix: str = ""

    def __str__(self) -> str:
        """Return the fault as one line of text."""
        line = f"{self.path}: {self.message}" if self.path else self.message
        if self.allowed:
            line += f" (allowed: {self.allowed})"
        if self.fix:
            line += f"; {self.fix}"
        return line


class DivvyError(Exception):
    """A refusal that carries every fault found, so that a person mends them in one go.

    Attributes:
        status: The HTTP status of the same refusal; the exit code follows from it.
        title: One line on what could not be done.
        faults: All faults, in the order of the input; never empty.
    """

    status = 400

    def __init__(self, title: str, faults: Sequence[Fault]) -> None:
        super().__init__(title)
        self.title = title
        self.faults = tuple(faults)

    @property
    def code(self) -> str:
        """Return the code of the first fault."""
        return self.faults[0].code

    @property
    def exit_code(self) -> int:
        """Return the exit code of the command line for this refusal."""
        return _HTTP_TO_EXIT.get(self.status, EXIT_USAGE if self.status < 500 else EXIT_FAILED)

    def __str__(self) -> str:
        """Return the title and every fault on its own line."""
        return "\n".join([self.title, *(f"  {fault}" for fault in self.faults)])

    def to_problem(self) -> dict[str, Any]:
        """Return the RFC 9457 document; the member ``faults`` lists every fault."""
        return {
            "type": f"urn:divvy:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": "; ".join(str(fault) for fault in self.faults),
            "code": self.code,
            "faults": [
                {"code": f.code, "path": f.path, "message": f.message, "allowed": f.allowed, "fix": f.fix}
                for f in self.faults
            ],
        }

    @classmethod
    def one(cls, code: str, message: str, *, path: str = "", allowed: str = "", fix: str = "") -> Self:
        """Return an error with a single fault, whose message is also the title."""
        return cls(message, [Fault(code, path, message, allowed, fix)])


class InputError(DivvyError):
    """What was given cannot be understood or breaks a rule."""

    status = 422


class DeniedError(DivvyError):
    """The caller is known but may not do this."""

    status = 403


class UnauthenticatedError(DivvyError):
    """The caller did not say who they are, or not convincingly."""

    status = 401


class NotFoundError(DivvyError):
    """No subject of that name; the fault lists near or valid names."""

    status = 404


class ConflictError(DivvyError):
    """The state moved on since the caller looked (stale version, ended job)."""

    status = 409


class UnavailableError(DivvyError):
    """A part that is needed cannot be reached or cannot write now."""

    status = 503


class EngineError(DivvyError):
    """An engine refused or failed; the faults carry what it said."""

    status = 502


def problem_to_error(problem: dict[str, Any]) -> DivvyError:
    """Return the error that an RFC 9457 document of this API describes."""
    status = int(problem.get("status", 500))
    kind = next((c for c in DivvyError.__subclasses__() if c.status == status), DivvyError)
    faults = [
        Fault(
            str(f["code"]),
            str(f["path"]),
            str(f["message"]),
            str(f.get("allowed", "")),
            str(f.get("fix", "")),
        )
        for f in problem.get("faults", [])
    ] or [Fault(str(problem.get("code", "error")), "", str(problem.get("detail", problem.get("title", ""))))]
    error = kind(str(problem.get("title", "the request failed")), faults)
    error.status = status
    return error
