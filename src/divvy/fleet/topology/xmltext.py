"""Read XML that may be cut off or damaged: everything before the fault, and where the fault is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from divvy.errors import InputError

_ENTITY: Final = re.compile(r"<!ENTITY", re.IGNORECASE)


def read_xml(name: str, text: str) -> tuple[Element, str]:
    """Return the root with all that was read, and what is wrong with the text (empty: nothing).

    Raises:
        InputError: If not even the first element can be read, or the text declares entities.
    """
    if _ENTITY.search(text):
        raise InputError.one(
            "unreadable", f"{name} declares XML entities", path=name, fix="remove the DOCTYPE entities"
        )
    parser: XMLPullParser[Any] = XMLPullParser(events=("start",))
    root: Element | None = None
    fault = ""
    try:
        for line in text.lstrip("\ufeff \r\n\t").splitlines(keepends=True):
            parser.feed(line)
            root = root if root is not None else _first(parser)
        parser.close()
    except ParseError as error:
        row, column = error.position
        fault = f"line {row}, column {column}: {str(error).partition(':')[0]}"
    if root is None:
        root = _first(parser)
    if root is None:
        raise InputError.one("unreadable", f"{name} is not XML: {fault or 'no element'}", path=name)
    return root, fault


def _first(parser: XMLPullParser[Any]) -> Element | None:
    """Return the root element once it has begun."""
    with suppress(ParseError):
        events: Iterator[Any] = parser.read_events()
        return next((element for _, element in events), None)
    return None
