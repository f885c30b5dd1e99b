"""Every refusal is an RFC 9457 problem document with all faults and their codes; nothing internal leaks."""

from __future__ import annotations

from typing import Any, Final

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from divvy.errors import DivvyError, Fault, InputError
from divvy.service.answers import http_problem, problem

_log = structlog.get_logger("api")
_SHOWN: Final = 100
_PLACES: Final = "those that /openapi.json lists"
_CODES: Final = {404: "path-unknown", 405: "method-unknown", 413: "body-large"}


def install(app: FastAPI) -> None:
    """Answer every kind of error that can leave a route with a problem document."""
    app.add_exception_handler(DivvyError, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _broken)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, DivvyError)  # noqa: S101 - registered for this class
    return problem(error)


async def _malformed(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class
    faults = [_fault(found) for found in error.errors()[:_SHOWN]]
    return problem(InputError("the request cannot be understood", faults))


async def _http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
    code = _CODES.get(error.status_code, f"http-{error.status_code}")
    if error.status_code == 400:  # FastAPI's words for a body that is not JSON at all
        return problem(InputError.one("request-json", "the body is not valid JSON", path="body"))
    detail = "there is no such path" if error.status_code == 404 else str(error.detail)
    return http_problem(error.status_code, code, detail, _PLACES if error.status_code == 404 else "")


async def _broken(request: Request, error: Exception) -> Response:
    _log.error("request failed", method=request.method, path=request.url.path, exc_info=error)
    return http_problem(500, "internal", "the server failed on this request; its log says why")


def _fault(found: dict[str, Any]) -> Fault:
    """Return a fault from one of pydantic's; the value given is shown only if it is short and plain."""
    kind, where = str(found.get("type", "invalid")), [str(step) for step in found.get("loc", ())]
    if where[:1] in (["body"], ["query"], ["path"]):
        where = where[1:]
    if kind == "json_invalid":
        return Fault("request-json", "body", "the body is not valid JSON", "a JSON object")
    given = found.get("input")
    shown = f" (given: {given!r})" if isinstance(given, str | int | float) and len(str(given)) <= 60 else ""
    code = {"missing": "request-missing", "extra_forbidden": "request-unknown"}.get(kind, f"request-{kind}")
    if kind == "model_attributes_type":
        return Fault("request-type", "body", "the body is no JSON object", _OBJECT, "send it as that")
    message = str(found.get("msg", "invalid")) + shown
    allowed, fix = _allowed(kind, found.get("ctx") or {}), _FIXES.get(kind, "correct it")
    return Fault(code.replace("_", "-"), ".".join(where)[:200], message, allowed, fix)


_FIXES: Final = {"missing": "add it", "extra_forbidden": "leave it away; it may be misspelt"}
_OBJECT: Final = "a JSON object, with Content-Type: application/json"
_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "dict": "an object",
}
_BOUNDS: Final = {
    "le": "at most {}",
    "ge": "at least {}",
    "lt": "less than {}",
    "gt": "more than {}",
    "max_length": "at most {} long",
    "min_length": "at least {} long",
    "pattern": "what matches {}",
    "expected": "{}",
}


def _allowed(kind: str, context: dict[str, Any]) -> str:
    """Return what would be accepted, as far as the kind of a fault says."""
    bounds = [text.format(context[name]) for name, text in _BOUNDS.items() if name in context]
    if kind.endswith(("_type", "_parsing")):
        bounds.append(_TYPES.get(kind.rpartition("_")[0], kind.rpartition("_")[0]))
    return ", ".join(bounds)
