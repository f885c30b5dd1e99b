"""How routes describe themselves in the OpenAPI document: shape, example, refusals."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from starlette.responses import JSONResponse

from divvy.service.examples import EXAMPLES
from divvy.service.schemas import Problem

_NAMED: Final = "x-example"
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
    content = {"application/json": {"example": {_NAMED: example}}}
    responses: dict[int | str, Any] = {
        status: {"model": model, "content": content},
        422: {**_PROBLEM, "description": "What was given cannot be used; every fault is listed"},
    }
    if not anonymous:
        responses[401] = {**_PROBLEM, "description": "No token, or not a valid one"}
        responses[403] = {**_PROBLEM, "description": "Known, but may not do this"}
        responses[503] = {**_PROBLEM, "description": "The scheduler or the store cannot answer now"}
    return {"responses": responses, "response_class": JSONResponse, "response_model": None}


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of an application, with its examples.

    FastAPI leaves every null out of what it is given, which would make the examples wrong; so routes only
    name theirs, and they are put in here.
    """
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            description=app.description,
            license_info=app.license_info,
            routes=app.routes,
        )
        for item in document["paths"].values():
            for operation in item.values():
                for response in operation["responses"].values():
                    for content in response.get("content", {}).values():
                        named = content.get("example", {}).get(_NAMED)
                        if named is not None:
                            content["example"] = EXAMPLES[named]
        app.openapi_schema = document
    return app.openapi_schema
