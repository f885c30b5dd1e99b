"""How a refusal looks: what was asked, what is allowed, what to do, and the code that the API gives too."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

from divvy.cli.render import Cell, Screen, Span
from divvy.errors import DivvyError, Fault

_QUOTED: Final = re.compile(r"'([^']+)'")


def print_error(error: DivvyError, *, as_json: bool) -> None:
    """Write a refusal to standard error, as RFC 9457 JSON if the verb was asked for JSON."""
    if as_json:
        print(json.dumps(error.to_problem()), file=sys.stderr)
        return
    screen = Screen(sys.stderr)
    only = error.faults[0] if len(error.faults) == 1 else None
    screen.line(Span("error: ", "bold red"), Span(error.title, "bold"), Span(f"  [{error.code}]", "dim"))
    if only is not None:
        _details(screen, only, "  ", titled=only.message == error.title)
        return
    for fault in error.faults:
        where = f"{fault.path}: " if fault.path else ""
        screen.line("  ", Span(where, "bold"), fault.message, Span(f"  [{fault.code}]", "dim"))
        _details(screen, replace(fault, path=""), "      ", titled=True)


def _details(screen: Screen, fault: Fault, indent: str, *, titled: bool) -> None:
    rows: list[tuple[str, Cell]] = []
    if not titled:
        rows.append(("asked", f"{fault.path}: {fault.message}" if fault.path else fault.message))
    elif any(mark in fault.path for mark in "./:"):  # a place in a file or document, not just an option
        rows.append(("where", fault.path))
    if fault.allowed:
        rows.append(("allowed", fault.allowed))
    near = nearest(fault)
    if near:
        rows.append(("do this", (Span("did you mean "), Span(near, "bold"), Span("?"))))
    elif fault.fix:
        rows.append(("do this", fault.fix))
    for name, text in rows:
        screen.line(indent, Span(f"{name:<8} ", "dim"), text)


def nearest(fault: Fault) -> str:
    """Return the valid name that an unknown name was probably meant to be; empty where none is near."""
    asked = _QUOTED.search(fault.message)
    if not fault.code.endswith("-unknown") or asked is None or not fault.allowed:
        return ""
    names = [name.strip() for name in fault.allowed.split(",")]
    whole = get_close_matches(asked.group(1), names, n=1, cutoff=0.6)
    if whole:
        return whole[0]
    last = {name.rpartition(".")[2]: name for name in names}
    part = get_close_matches(asked.group(1).rpartition(".")[2], list(last), n=1, cutoff=0.6)
    return last[part[0]] if part else ""
