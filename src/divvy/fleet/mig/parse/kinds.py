"""Tells which kind of MIG text a file is, and reads it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from divvy.errors import InputError
from divvy.fleet.mig.parse.devices import parse_device_table, parse_list
from divvy.fleet.mig.parse.instances import parse_lgi, parse_transcript
from divvy.fleet.mig.parse.labels import parse_dcgm, parse_node_labels
from divvy.fleet.mig.parse.parted import parse_parted
from divvy.fleet.mig.parse.profiles import parse_lgip, parse_lgipp


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of text: its name, how to know it, and its parser."""

    name: str
    mark: re.Pattern[str]
    parse: Callable[[str, str], Any]


#: In the order in which they are tried; the first whose mark is found reads the text.
KINDS: Final = (
    Kind("mig-parted", re.compile(r"^\s*mig-configs:", re.MULTILINE), parse_parted),
    Kind("node-labels", re.compile(r'"nvidia\.com/[\w.\-]+"\s*:'), parse_node_labels),
    Kind("dcgm", re.compile(r"^\s*DCGM_\w+", re.MULTILINE), parse_dcgm),
    Kind("lgi", re.compile(r"GPU instances:|Start:Size|No GPU instances found"), parse_lgi),
    Kind("device-table", re.compile(r"MIG devices:|GPU\s+GI\s+CI"), parse_device_table),
    Kind("list", re.compile(r"^\s*GPU\s+\d+: .+\(UUID: ", re.MULTILINE), parse_list),
    Kind("lgip", re.compile(r"GPU instance profiles:|MIG\s+\S+\s+\d+\s+\d+/\d+\s"), parse_lgip),
    Kind("lgipp", re.compile(r"Profile ID\s+\d+\s+Placement"), parse_lgipp),
    Kind(
        "transcript", re.compile(r"(?:Successfully|Unable to|Failed to) (?:create|destroy)"), parse_transcript
    ),
)


def read_any(text: str, path: str = "") -> tuple[str, Any]:
    """Return the name of the kind of a text, and what it says.

    Raises:
        InputError: If it is of no known kind, or damaged.
    """
    for kind in KINDS:
        if kind.mark.search(text):
            return kind.name, kind.parse(text, path)
    raise InputError.one(
        "mig-unknown-kind",
        "this is no MIG text that is known here",
        path=path,
        allowed=", ".join(kind.name for kind in KINDS),
    )
