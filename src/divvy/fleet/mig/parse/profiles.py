"""``nvidia-smi mig -lgip`` (profiles) and ``-lgipp`` (placements), and the SKU that they describe."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from divvy.errors import InputError
from divvy.fleet.mig.parse.lines import Faults, cells, content
from divvy.fleet.mig.profile import Profile, Sku, parse_profile_name

_ROW: Final = re.compile(
    r"(\d+)\s+MIG\s+(\S+)\s+(\d+)\s+(\d+)/(\d+)\s+(\d+(?:\.\d+)?)\s+(Yes|No)\s+(\d+)\s+(\d+)\s+(\d+)",
    re.ASCII,
)
_ENGINES: Final = re.compile(r"(\d+)\s+(\d+)\s+(\d+)", re.ASCII)
_PLACEMENT: Final = re.compile(
    r"GPU\s+(\d+)\s+Profile ID\s+(\d+)\s+Placements?\s*:\s*\{([\d,\s]*)\}:(\d+)", re.ASCII
)
_HEAD: Final = re.compile(r"GPU instance profiles:|GPU\s+Name\s+ID|Free/Total\s+GiB|^\s*\|?\s*CE\s+JPEG")


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One profile as ``-lgip`` prints it; memory in GiB as printed."""

    gpu: int
    name: str
    profile_id: int
    free: int
    total: int
    memory_gib: float
    p2p: bool
    sms: int
    decoders: int
    encoders: int
    copy_engines: int
    jpeg: int
    ofa: int


@dataclass(frozen=True, slots=True)
class PlacementRow:
    """One line of ``-lgipp``."""

    gpu: int
    profile_id: int
    starts: tuple[int, ...]
    size: int


def parse_lgip(text: str, path: str = "") -> tuple[ProfileRow, ...]:
    """Return the profiles that ``nvidia-smi mig -lgip`` lists; placement lines in the same text are skipped.

    Raises:
        InputError: With every line that is damaged or means nothing.
    """
    faults = Faults(path, "nvidia-smi mig -lgip")
    rows: list[ProfileRow] = []
    pending: tuple[int, re.Match[str]] | None = None
    for number, line in content(text):
        if _HEAD.search(line) or _PLACEMENT.fullmatch(line.strip()):
            continue
        body = cells(line)
        row, engines = _ROW.fullmatch(body), _ENGINES.fullmatch(body)
        if engines is not None and pending is not None:
            first = pending[1]
            rows.append(
                ProfileRow(
                    int(first[1]),
                    parse_profile_name(first[2], path=f"{path}:{number}").text,
                    int(first[3]),
                    int(first[4]),
                    int(first[5]),
                    float(first[6]),
                    first[7] == "Yes",
                    int(first[8]),
                    int(first[9]),
                    int(first[10]),
                    int(engines[1]),
                    int(engines[2]),
                    int(engines[3]),
                )
            )
            pending = None
        elif row is not None:
            if pending is not None:
                faults.add(pending[0], "the second line of this row (CE, JPEG, OFA) is missing")
            if int(row[4]) > int(row[5]):
                faults.add(number, f"{row[4]} instances free of {row[5]}")
            pending = (number, row)
        else:
            faults.unread(number, line)
    if pending is not None:
        faults.add(pending[0], "the second line of this row (CE, JPEG, OFA) is missing")
    faults.close(text)
    faults.finish(empty=not rows)
    return tuple(rows)


def parse_lgipp(text: str, path: str = "") -> tuple[PlacementRow, ...]:
    """Return the placements that ``nvidia-smi mig -lgipp`` lists; a ``-lgip`` table in the text is skipped.

    Raises:
        InputError: With every line that is damaged or means nothing.
    """
    faults = Faults(path, "nvidia-smi mig -lgipp")
    rows: list[PlacementRow] = []
    for number, line in content(text):
        body = line.strip()
        match = _PLACEMENT.fullmatch(body)
        if match is None:
            inner = cells(line)
            if not (_HEAD.search(line) or _ROW.fullmatch(inner) or _ENGINES.fullmatch(inner)):
                faults.unread(number, line)
            continue
        starts = tuple(int(part) for part in match[3].split(",") if part.strip())
        if not starts or int(match[4]) == 0:
            faults.add(number, "no start, or size 0", "{start, ...}:size")
            continue
        rows.append(PlacementRow(int(match[1]), int(match[2]), tuple(sorted(starts)), int(match[4])))
    faults.finish(empty=not rows)
    return tuple(rows)


def learn_sku(name: str, lgip: str, lgipp: str, *, gpu: int | None = None) -> Sku:
    """Return the SKU that the two listings of a machine describe, with the driver's own profile numbers.

    Args:
        name: What to call it.
        lgip: Output of ``nvidia-smi mig -lgip``.
        lgipp: Output of ``nvidia-smi mig -lgipp``.
        gpu: Which GPU's rows to use; the first one listed where None.

    Raises:
        InputError: If a text is damaged, or one lists a profile that the other does not.
    """
    rows, places = parse_lgip(lgip, f"{name} -lgip"), parse_lgipp(lgipp, f"{name} -lgipp")
    index = rows[0].gpu if gpu is None else gpu
    faults = Faults(name, "a table of MIG profiles")
    where = {p.profile_id: p for p in places if p.gpu == index}
    profiles: list[Profile] = []
    for row in rows:
        if row.gpu != index:
            continue
        spot = where.pop(row.profile_id, None)
        if spot is None:
            faults.add(0, f"{row.name} (ID {row.profile_id}) has no placements in -lgipp")
            continue
        parts = parse_profile_name(row.name)
        profiles.append(
            Profile(
                row.name,
                parts.gpcs,
                spot.size,
                spot.starts,
                row.total,
                parts.memory_gb,
                row.sms,
                row.profile_id,
            )
        )
    for profile_id in sorted(where):
        faults.add(0, f"profile ID {profile_id} has placements in -lgipp but no row in -lgip")
    faults.finish(empty=not profiles)
    whole = max(profiles, key=lambda p: (p.gpcs, p.size))
    return Sku(
        name, whole.gpcs, whole.size, tuple(sorted(profiles, key=_order)), (), "learned from nvidia-smi"
    )


def _order(profile: Profile) -> tuple[bool, int, int, str]:
    return (not profile.base, profile.gpcs, profile.size, profile.name)


def read_table(text: str, name: str, path: str = "") -> Sku:
    """Return the SKU from one text that holds both listings.

    Raises:
        InputError: If one of the two is missing or damaged.
    """
    if not _PLACEMENT.search(text):
        raise InputError.one(
            "mig-table",
            "the placements are missing",
            path=path,
            fix="append the output of nvidia-smi mig -lgipp to the file",
        )
    return learn_sku(name, text, text)
