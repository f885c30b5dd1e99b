"""How routes describe themselves in the OpenAPI document: shape, example, refusals."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel
from starlette.responses import JSONResponse

from divvy.service.examples import EXAMPLES
from divvy.service.schemas import Problem

_PROBLEM: Final = {"model": Problem, "content": {"application/problem+json": {}}}


def answers(
    model: type[BaseModel], example: str, *, status: int = 200, anonymous: bool = False
) -> dict[str, Any]:
    """Return the keyword arguments of a route that answers a shape.

    Args:
        model: The shape.
        example: Name of its example in `divvy.service.examples`.
        status: Status of success.
        anonymous: Whether it answers without knowing who asks.
    """
    content = {"application/json": {"example": EXAMPLES[example]}}
    responses: dict[int | str, Any] = {
        status: {"model": model, "content": content},
        422: {**_PROBLEM, "description": "What was given cannot be used; every fault is listed"},
    }
    if not anonymous:
        responses[401] = {**_PROBLEM, "description": "No token, or not a valid one"}
        responses[403] = {**_PROBLEM, "description": "Known, but may not do this"}
        responses[503] = {**_PROBLEM, "description": "The scheduler or the store cannot answer now"}
    return {"responses": responses, "response_class": JSONResponse, "response_model": None}
