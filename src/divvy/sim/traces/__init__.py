"""Readers of recorded workloads: bytes in, jobs and every fault out, nothing silently mended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from divvy.errors import InputError
from divvy.sim.traces import acme, elasticflow, helios, pai, philly, swf, tiresias
from divvy.sim.traces.jsonlines import read_jsonlines
from divvy.sim.traces.table import fields_of
from divvy.sim.traces.trace import OnError, Trace

AUTO: Final = "auto"


class Format(NamedTuple):
    """A format.

    Attributes:
        read: Returns the jobs of a file.
        looks: Whether the first line of a file is of this format.
    """

    read: Callable[[bytes, str, OnError], Trace]
    looks: Callable[[str], bool]


def _header(looks: Callable[[list[str]], bool]) -> Callable[[str], bool]:
    """Return a test of a first line from one of its columns."""
    return lambda line: looks([name.strip() for name in fields_of(line)])


#: Formats by name; a new one is a file and a line here. `auto` takes the first that looks like it.
FORMATS: Final[dict[str, Format]] = {
    "philly": Format(philly.read_philly, _header(philly.looks)),
    "divvy": Format(read_jsonlines, lambda line: line.lstrip().startswith("{")),
    "helios": Format(helios.read_helios, _header(helios.looks)),
    "acme": Format(acme.read_acme, _header(acme.looks)),
    "pai": Format(pai.read_pai, _header(pai.looks)),
    "elasticflow": Format(elasticflow.read_elasticflow, _header(elasticflow.looks)),
    "tiresias": Format(tiresias.read_tiresias, _header(tiresias.looks)),
    "swf": Format(swf.read_swf, swf.looks),
}


def read_trace(data: bytes, name: str, source: str, on_error: OnError = OnError.FAIL) -> Trace:
    """Return the jobs of a trace in order of submission.

    Args:
        data: The file.
        name: Format, one of `FORMATS`, or `AUTO` to go by the first line.
        source: What to call the file in faults.
        on_error: What to do about a malformed row.

    Raises:
        InputError: If the format is unknown, the file as a whole cannot be read, or a row is malformed
            and the caller wants that to be fatal; every malformed row is listed with its line.
    """
    known = FORMATS.get(_guess(data, source) if name == AUTO else name)
    if known is None:
        raise InputError.one(
            "trace-format",
            f"unknown trace format {name!r}",
            path="--format",
            allowed=", ".join((*FORMATS, AUTO)),
            fix="choose one of these",
        )
    return known.read(data, source, on_error)


def _guess(data: bytes, source: str) -> str:
    """Return the format that the first line of a file looks like.

    What is no text at all goes to our own format, whose reader says what is wrong with it.

    Raises:
        InputError: If it looks like none of them.
    """
    lines = data.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)[0]
    try:
        line = lines.decode().strip()
    except UnicodeDecodeError:
        return "divvy"
    if not line or "\0" in line:
        return "divvy"
    for name, known in FORMATS.items():
        if known.looks(line):
            return name
    raise InputError.one(
        "trace-format",
        f"the first line looks like no known format: {line[:120]!r}",
        path=source,
        allowed=", ".join(FORMATS),
        fix="name the format with --format",
    )
