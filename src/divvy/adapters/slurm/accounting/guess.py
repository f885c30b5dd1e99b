"""The columns of a table without a header, from what stands in them.

Known orders are tried first. Else each column is taken for what all its values can be: ids, times, states,
TRES; times that come after each other are submission, eligibility, start and end. Which column of plain words
is the account cannot be seen, unless the budget claims words that stand in one of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise, permutations
from typing import Final

from divvy.adapters.slurm.accounting.layout import VALID, Layout
from divvy.adapters.slurm.accounting.rows import JOB_ID

_HEAD: Final = "jobid jobidraw cluster partition"
_WHO: Final = "account group gid user uid"
_WHEN: Final = "submit eligible start end elapsed"
_SIZE: Final = "exitcode state nnodes ncpus reqcpus reqmem"
_TAIL: Final = "timelimit nodelist jobname"

#: Orders in which tools ask sacct: Open XDMoD, now and before AllocTRES; sacct's own default.
KNOWN: Final = (
    f"{_HEAD} qos {_WHO} {_WHEN} {_SIZE} reqtres alloctres {_TAIL}",
    f"{_HEAD} {_WHO} {_WHEN} {_SIZE} reqtres alloctres {_TAIL}",
    f"{_HEAD} {_WHO} {_WHEN} {_SIZE} reqgres reqtres {_TAIL}",
    f"{_HEAD} {_WHO} {_WHEN} {_SIZE} {_TAIL}",
    "jobid jobname partition account alloccpus state exitcode",
)
SAMPLE_ROWS: Final = 400
_ENOUGH: Final = 0.9
_TIMES: Final = {
    4: ("submit", "eligible", "start", "end"),
    3: ("submit", "start", "end"),
    2: ("start", "end"),
}
_REAL_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
_NODES: Final = re.compile(r"[A-Za-z][\w.-]*\d[\w.,\[\]-]*|None assigned")


def guess(lines: Sequence[str], separator: str, claims: Callable[[str], bool]) -> Layout | None:
    """Return the columns of a table, None where its lines are no table of jobs.

    Args:
        lines: Some of its lines.
        separator: What stands between columns.
        claims: Whether the budget claims a name.
    """
    rows = [line.split(separator) for line in lines if separator in line][:SAMPLE_ROWS]
    if not rows:
        return None
    for names in map(str.split, KNOWN):
        trailing = all(len(row) > len(names) and not row[-1] for row in rows)
        layout = Layout(names, separator, trailing=trailing)
        if sum(_fits(layout, row) for row in rows) >= _ENOUGH * _rows_of(rows, len(names)) > 0:
            return layout
    width = Counter(map(len, rows)).most_common(1)[0][0]
    columns = list(zip(*(row for row in rows if len(row) == width), strict=True))
    names = _name(columns, claims)
    return Layout(names, separator) if "jobid" in names and "state" in names else None


def _rows_of(rows: Sequence[Sequence[str]], width: int) -> int:
    """Return how many rows a layout must explain: all, unless hardly any has its width."""
    fitting = sum(len(row) in (width, width + 1) for row in rows)
    return len(rows) if fitting else 0


def _fits(layout: Layout, row: list[str]) -> bool:
    """Return whether a row fits, a state aside: one that Slurm does not know is the row's fault."""
    laid = row[:-1] if len(row) == len(layout.names) + 1 and not row[-1] else row
    if len(laid) < len(layout.names):
        return False
    if len(laid) > len(layout.names):
        return layout.lay_out(layout.separator.join(row)) is not None
    state = layout.index["state"]
    return layout.fits([*laid[:state], "COMPLETED", *laid[state + 1 :]])


def _name(columns: Sequence[Sequence[str]], claims: Callable[[str], bool]) -> list[str]:
    """Return a name per column, ``?`` where it cannot be told."""
    names = ["?"] * len(columns)
    filled = [[value for value in column if value] for column in columns]
    free = [place for place, values in enumerate(filled) if values]

    def take(name: str, place: int | None) -> None:
        if place is not None:
            names[place] = name
            free.remove(place)

    ids = [place for place in free if all(JOB_ID.fullmatch(value) for value in filled[place])]
    ids = [place for place in ids if len(set(filled[place])) * 2 > len(filled[place]) or place == 0]
    take("jobid", _first([p for p in ids if any("_" in v or "." in v or "+" in v for v in filled[p])] or ids))
    take("state", _first([p for p in free if _all(filled[p], VALID["state"])]))
    _name_times(columns, filled, names, free)
    _name_tres(columns, filled, names, free)
    take("exitcode", _first([p for p in free if _all(filled[p], VALID["exitcode"])]))
    take("nodelist", _first([p for p in free if _looks_like_nodes(filled[p])]))
    claimed = [p for p in free if any(map(claims, filled[p]))]
    take("account", max(claimed, key=lambda p: sum(map(claims, filled[p])), default=None))
    words = [p for p in free if not all(re.fullmatch(r"[\d:.\-KMGTcn]*", value) for value in filled[p])]
    if words and max(len(set(filled[p])) for p in words) > 1:
        take("jobname", max(words, key=lambda p: len(set(filled[p]))))
    return names


def _first(places: Sequence[int]) -> int | None:
    return places[0] if places else None


def _all(values: Sequence[str], valid: Callable[[str], bool]) -> bool:
    return sum(map(valid, values)) >= _ENOUGH * len(values)


def _looks_like_nodes(values: Sequence[str]) -> bool:
    marked = any("[" in value or value == "None assigned" for value in values)
    return marked and _all(values, lambda value: _NODES.fullmatch(value) is not None)


def _name_times(
    columns: Sequence[Sequence[str]], filled: Sequence[Sequence[str]], names: list[str], free: list[int]
) -> None:
    """Name times by their order in time, then the durations."""
    places = [
        p
        for p in free
        if _all(filled[p], VALID["start"]) and any(_REAL_TIME.match(value) for value in filled[p])
    ][:4]
    roles = _TIMES.get(len(places), ())
    if roles:
        best = max(permutations(places), key=lambda order: (_in_order(columns, order), [-p for p in order]))
        for role, place in zip(roles, best, strict=True):
            names[place] = role
            free.remove(place)
    spans = [
        p for p in free if _all(filled[p], VALID["timelimit"]) and any(":" in value for value in filled[p])
    ]
    # A limit is mostly a round number of minutes; what is used is not.
    spans.sort(
        key=lambda p: (
            sum(value.endswith(":00") or not value[:1].isdigit() for value in filled[p]) / len(filled[p])
        )
    )
    if spans:
        round_one = spans[-1]
        for place in spans:
            lasting = (
                "timelimit"
                if place == round_one and (len(spans) > 1 or _all(filled[place], _round))
                else "elapsed"
            )
            if lasting not in names:
                names[place] = lasting
                free.remove(place)


def _round(value: str) -> bool:
    return value.endswith(":00") or not value[:1].isdigit()


def _in_order(columns: Sequence[Sequence[str]], order: Sequence[int]) -> int:
    """Return in how many rows the times of these columns come one after the other."""
    rows = zip(*(columns[place] for place in order), strict=True)
    return sum(all(a <= b for a, b in pairwise(row) if _REAL_TIME.match(b)) for row in rows)


def _name_tres(
    columns: Sequence[Sequence[str]], filled: Sequence[Sequence[str]], names: list[str], free: list[int]
) -> None:
    """Name what was allocated, asked for and used: what never started has been allocated nothing."""
    tres = [p for p in free if _all(filled[p], lambda value: "=" in value and VALID["alloctres"](value))]
    used = [p for p in tres if any("gpuutil=" in value or "fs/disk=" in value for value in filled[p])]
    for place in used[:1]:
        names[place] = "tresusageinave"
        free.remove(place)
    held = [p for p in tres if p not in used][:2]
    if len(held) == 2:
        state = names.index("state") if "state" in names else None
        waiting = (
            [row for row, word in enumerate(columns[state]) if word == "PENDING"] if state is not None else []
        )
        empty = [sum(not columns[p][row] for row in waiting) for p in held]
        more = [sum("gres/gpu" in value for value in columns[p]) for p in held]
        if (empty[0], more[0]) > (empty[1], more[1]):
            held.reverse()
        names[held[0]] = "reqtres"
        free.remove(held[0])
        held = held[1:]
    for place in held:
        names[place] = "alloctres"
        free.remove(place)
