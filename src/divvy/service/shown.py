"""Documents put on the page: plans, topologies, routes, what routers serve; files in the state directory.

They are what `divvy ... --json` printed, checked against the published shape. Each says who put it there,
when, by which command, and whether it is an example.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from divvy.errors import ConflictError, Fault, InputError, NotFoundError
from divvy.service.schemas.interconnect import INTERCONNECT
from divvy.service.schemas.one_plan import OnePlanView
from divvy.service.schemas.serving import ServeShown
from divvy.service.schemas.slices import SLICES

MOST: Final = 64
NAME: Final = r"^[a-z0-9][a-z0-9._-]{0,62}$"

#: Where each kind of document is shown; others are refused, since nothing would draw them.
VIEWS: Final = {
    "divvy.slices.plan/1": "slices",
    "divvy.slices.pack/1": "slices",
    "divvy.slices.apply/1": "slices",
    "divvy.topo/1": "transfers",
    "divvy.route.plan/1": "transfers",
    "divvy.route.explain/1": "transfers",
    "divvy.serve.shown/1": "serving",
    "divvy.plan/1": "plan",
}
_DRAWN: Final[tuple[type[BaseModel], ...]] = (*INTERCONNECT, *SLICES, ServeShown, OnePlanView)
_MODELS: Final[dict[str, type[BaseModel]]] = {
    str(model.model_fields["schema_"].annotation.__args__[0]): model  # type: ignore[union-attr]  # Literal[...]
    for model in _DRAWN
}
_SHOWN: Final = 10


class ShownDocuments:
    """The documents below a directory.

    Args:
        root: Made when the first document comes.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def listed(self) -> list[dict[str, Any]]:
        """Return what is there, without the documents, by name; a file that cannot be read is left out."""
        found = (self._read(path) for path in sorted(self._root.glob("*.json")))
        return [{key: value for key, value in one.items() if key != "document"} for one in found if one]

    def get(self, name: str) -> dict[str, Any]:
        """Return one with its document.

        Raises:
            NotFoundError: If there is none of that name.
        """
        found = self._read(self._path(name)) if re.match(NAME, name) else None
        if found is None:
            known = ", ".join(path.stem for path in sorted(self._root.glob("*.json"))[:20])
            raise NotFoundError.one(
                "shown-unknown",
                f"nothing of the name {name[:80]!r} is shown",
                path="name",
                allowed=known or "none yet",
            )
        return found

    def put(
        self, name: str, document: Mapping[str, Any], *, by: str, at: float, command: str, example: bool
    ) -> dict[str, Any]:
        """Keep a document and return what was kept, without it.

        Raises:
            InputError: If nothing can show it, or it has not the shape that its schema promises.
            ConflictError: If too many are there.
        """
        schema = str(document.get("schema", ""))
        check_document(document)
        path = self._path(name)
        if not path.exists() and len(list(self._root.glob("*.json"))) >= MOST:
            raise ConflictError.one(
                "shown-full",
                f"{MOST} documents are shown",
                allowed=f"at most {MOST}",
                fix="take one off the page",
            )
        kept = {
            "name": name,
            "kind": schema,
            "view": VIEWS[schema],
            "title": _title(document),
            "example": example,
            "by": by,
            "at": at,
            "command": command,
        }
        self._root.mkdir(mode=0o700, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}.tmp")
        fresh.write_text(json.dumps({**kept, "document": document}), encoding="utf-8")
        fresh.replace(path)
        return kept

    def remove(self, name: str) -> None:
        """Take a document off the page.

        Raises:
            NotFoundError: If there is none of that name.
        """
        self.get(name)
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._root / f"{name}.json"

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and found.get("kind") in VIEWS else None


def check_document(document: Mapping[str, Any]) -> None:
    """Refuse what no page can show, with all that is wrong with it.

    Raises:
        InputError: Saying what.
    """
    schema = str(document.get("schema", ""))
    if schema not in VIEWS:
        raise InputError.one(
            "shown-kind",
            f"no page shows {schema[:80]!r}",
            path="document.schema",
            allowed=", ".join(VIEWS),
            fix="give what `divvy plan`, `slices plan`, `topo show` or `route plan` prints with --json",
        )
    try:
        _MODELS[schema].model_validate(document)
    except ValidationError as error:
        faults = [
            Fault(
                "shown-shape",
                ".".join(["document", *(str(step) for step in found["loc"])]),
                str(found["msg"]),
                f"docs/reference/schemas, {schema}",
            )
            for found in error.errors()[:_SHOWN]
        ]
        raise InputError("the document has not the shape of its schema", faults) from error


def _title(document: Mapping[str, Any]) -> str:
    """Return what a document is about, in a line."""
    return _TITLES[str(document["schema"])](document)


def _transfers(document: Mapping[str, Any]) -> str:
    count = len(document["transfers"])
    return f"{count} transfer{'' if count == 1 else 's'} on {document['topology']}"


def _router(document: Mapping[str, Any]) -> str:
    return f"{', '.join(one['model'] for one in document['models'])} at {document['address']}"


_TITLES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "divvy.slices.plan/1": lambda one: f"{one['model']} on {one['gpus']} x {one['sku']}",
    "divvy.slices.pack/1": lambda one: f"{len(one['models'])} models on {one['gpus']} x {one['sku']}",
    "divvy.slices.apply/1": lambda one: f"change of {len(one['gpcs_idle'])} x {one['sku']}",
    "divvy.topo/1": lambda one: str(one["name"]),
    "divvy.route.plan/1": _transfers,
    "divvy.route.explain/1": lambda one: f"{one['from']} to {one['to']} on {one['topology']}",
    "divvy.serve.shown/1": _router,
    "divvy.plan/1": lambda one: f"version {one['version']} of {one['source']}",
}
