"""The JSON Schemas in docs/reference/schemas: what every ``--json`` and every answer of the API promises.

They are written from the models, by ``python -m divvy.service.schemas.published DIRECTORY``, and a test holds
the files to the models. Members may be added to a version later, so a published schema permits what it does
not name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from divvy.service import schemas
from divvy.service.schemas.interconnect import INTERCONNECT
from divvy.service.schemas.one_plan import ONE_PLAN
from divvy.service.schemas.pairing import PAIRING
from divvy.service.schemas.serving import ServeShown
from divvy.service.schemas.slices import SLICES

_ANSWERS: Final[tuple[type[BaseModel], ...]] = (
    schemas.BudgetAccepted,
    schemas.BudgetHistory,
    schemas.BudgetView,
    schemas.Cancelled,
    schemas.Claims,
    schemas.Decision,
    schemas.Decisions,
    schemas.Doctor,
    schemas.Drain,
    schemas.Explanation,
    schemas.Health,
    schemas.Job,
    schemas.Jobs,
    schemas.Me,
    schemas.Policies,
    schemas.Queue,
    schemas.Shown,
    schemas.ShownKept,
    schemas.ShownList,
    schemas.ShownRemoved,
    schemas.Statement,
    schemas.Status,
    schemas.TokenCreated,
    schemas.TokenRevoked,
    schemas.Tokens,
    schemas.WhatIf,
)

_PRINTED: Final[tuple[type[BaseModel], ...]] = (*INTERCONNECT, *SLICES, *PAIRING, *ONE_PLAN, ServeShown)

#: What only the command line prints: pieces of a log, and the address of the page.
_COMMAND_LINE: Final[dict[str, dict[str, dict[str, str]]]] = {
    "divvy.log/1": {
        "job": {"type": "string"},
        "stream": {"type": "string", "description": "stdout or stderr"},
        "text": {"type": "string", "description": "The bytes as UTF-8; what is not is replaced."},
        "next_offset": {"type": "integer", "description": "Byte at which the next piece starts."},
    },
    "divvy.page/1": {
        "url": {"type": "string", "description": "Address of the page with a token that signs in."},
        "token_id": {"type": "string", "description": "What `divvy token revoke` takes."},
        "expires_at": {"type": "number", "description": "Unix seconds."},
    },
}


def published() -> dict[str, dict[str, Any]]:
    """Return every schema by the name of its file: ``status.1.json`` holds ``divvy.status/1``."""
    found: dict[str, dict[str, Any]] = {}
    for model in (*_ANSWERS, *_PRINTED):
        schema = _permit_more(model.model_json_schema(by_alias=True, mode="serialization"))
        found[_file_name(schema["properties"]["schema"]["const"])] = schema
    problem = _permit_more(schemas.Problem.model_json_schema(mode="serialization"))
    found["problem.json"] = problem
    for name, members in _COMMAND_LINE.items():
        properties = {"schema": {"const": name, "type": "string"}, **members}
        found[_file_name(name)] = {
            "title": name,
            "type": "object",
            "properties": properties,
            "required": list(properties),
        }
    return found


def _file_name(schema: str) -> str:
    name, _, version = schema.removeprefix("divvy.").partition("/")
    return f"{name}.{version}.json"


def _permit_more(schema: Any) -> Any:
    """Return a schema without its refusals of further members."""
    if isinstance(schema, dict):
        kept = {key: _permit_more(value) for key, value in schema.items()}
        if kept.get("additionalProperties") is False:
            del kept["additionalProperties"]
        return kept
    if isinstance(schema, list):
        return [_permit_more(item) for item in schema]
    return schema


def text(schema: dict[str, Any]) -> str:
    """Return a schema as its file holds it."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for file, document in published().items():
        (Path(sys.argv[1]) / file).write_text(text(document), encoding="utf-8")
