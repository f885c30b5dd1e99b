"""The columns of a table of Slurm: their names, what may stand in them, and rows that do not fit at once.

A job's name or submit line may hold the separator and newlines; sacct does not quote. A row with too many
pieces is laid out again: the pieces too many go into a column of free text, so that every other column holds
what it can hold. The cheapest such layout is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from divvy.adapters.slurm.accounting.clock import NO_LIMIT, NO_TIME
from divvy.adapters.slurm.accounting.rows import JOB_ID
from divvy.adapters.slurm.accounting.states import state_of

#: Names of columns in sacct and squeue that mean the same, lower case.
_SAME: Final = {
    "st": "state",
    "jobstate": "state",
    "submit_time": "submit",
    "submittime": "submit",
    "start_time": "start",
    "starttime": "start",
    "end_time": "end",
    "endtime": "end",
    "eligible_time": "eligible",
    "eligibletime": "eligible",
    "time_limit": "timelimit",
    "time": "elapsed",
    "time_used": "elapsed",
    "timeused": "elapsed",
    "nodes": "nnodes",
    "numnodes": "nnodes",
    "name": "jobname",
    "job_name": "jobname",
    "tres_alloc": "alloctres",
    "tres-alloc": "alloctres",
    "tresalloc": "alloctres",
    "tres_per_node": "trespernode",
    "tres-per-node": "trespernode",
    "tres_per_job": "tresperjob",
    "tres-per-job": "tresperjob",
    "tres_per_task": "trespertask",
    "gres": "trespernode",
    "allocgres": "allocgres",
    "nodelist(reason)": "nodelist",
    "reason_nodelist": "nodelist",
    "user_name": "user",
    "userid": "uid",
    "acct": "account",
    "cputime": "cputime",
    "id": "jobid",
    "job_id": "jobid",
    "tasks": "ntasks",
    "gpu_util": "gpuutil",
    "gpuutilization": "gpuutil",
    "gpu_utilization": "gpuutil",
    "avegpuutil": "gpuutil",
}
#: Fields of sacct and squeue, lower case: enough to tell a header from a row.
_FIELD_NAMES: Final = """
    account admincomment alloccpus allocgres allocnodes alloctres arrayjobid arraytaskid associd avecpu
    avecpufreq avediskread avediskwrite avepages averss avevmsize blockid cluster comment constraints
    consumedenergy consumedenergyraw container cputime cputimeraw dbindex derivedexitcode elapsed
    elapsedraw eligible end exitcode extra failednode flags gid group jobid jobidraw jobname layout
    licenses maxdiskread maxdiskreadnode maxdiskreadtask maxdiskwrite maxdiskwritenode maxdiskwritetask
    maxpages maxpagesnode maxpagestask maxrss maxrssnode maxrsstask maxvmsize maxvmsizenode maxvmsizetask
    mcslabel mincpu mincpunode mincputask ncpus nnodes nodelist ntasks partition planned plannedcpu
    plannedcpuraw priority qos qosraw qosreq reason reqcpufreq reqcpufreqgov reqcpufreqmax reqcpufreqmin
    reqcpus reqgres reqmem reqnodes reqtres reservation reservationid reserved resvcpu resvcpuraw restarts
    segmentsize sluid start state stderr stdin stdout steps submit submitline suspended systemcomment
    systemcpu timelimit timelimitraw totalcpu tresusageinave tresusageinmax tresusageinmaxnode
    tresusageinmaxtask tresusageinmin tresusageinminnode tresusageinmintask tresusageintot tresusageoutave
    tresusageoutmax tresusageoutmaxnode tresusageoutmaxtask tresusageoutmin tresusageoutminnode
    tresusageoutmintask tresusageouttot uid user usercpu wckey wckeyid workdir trespernode tresperjob
    trespertask gpuutil nodes_reason min_cpus features dependency command
"""
_FIELDS: Final = frozenset(_FIELD_NAMES.split())

#: Columns of free text, and how dear it is to put a piece too many into them.
ABSORBS: Final = {
    "jobname": 1,
    "submitline": 1,
    "comment": 1,
    "admincomment": 1,
    "systemcomment": 1,
    "extra": 1,
    "workdir": 2,
    "command": 1,
    "stdout": 2,
    "stderr": 2,
    "stdin": 2,
    "container": 2,
    "reason": 2,
    "wckey": 3,
    "failednode": 4,
    "constraints": 3,
    "reservation": 4,
    "account": 8,
    "user": 8,
    "group": 8,
}

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?(?:[+-]\d\d:?\d\d|Z)?|\d{9,11}", re.ASCII)
_DURATION: Final = re.compile(r"(?:\d+-)?(?:\d+:)?\d+:\d\d(?:\.\d+)?", re.ASCII)
_WHOLE: Final = re.compile(r"\d*(?:-\d+)?[KMGkmg]?", re.ASCII)
_EXIT: Final = re.compile(r"(?:\d+:\d+)?", re.ASCII)
_TRES: Final = re.compile(r"[\w/:.\-@]+=[^|\n]*|", re.ASCII)
_COMMAND: Final = re.compile(r"$|(?:[^\s|]*/)?(?:sbatch|srun|salloc|scrontab)\b")
_UNLIKELY: Final = 4
#: A name of an account or user may hold a separator or two, but never lines.
_DEAR: Final = 4
_FEW: Final = 2
_NODES: Final = re.compile(r"[^\s|]*|None assigned|\([^|\n]*\)")

Valid = Callable[[str], bool]


def _state(text: str) -> bool:
    try:
        return bool(state_of(text))
    except ValueError:
        return False


def _time(text: str) -> bool:
    return text in NO_TIME or _TIME.fullmatch(text) is not None


def _duration(text: str) -> bool:
    return text in NO_TIME or text in NO_LIMIT or _DURATION.fullmatch(text) is not None


def _matches(pattern: re.Pattern[str]) -> Valid:
    return lambda text: pattern.fullmatch(text) is not None


def _limit(text: str) -> bool:
    return _duration(text) or text.isdigit()


VALID: Final[dict[str, Valid]] = {
    "jobid": _matches(JOB_ID),
    "jobidraw": _matches(re.compile(JOB_ID.pattern + "|", re.ASCII)),
    "state": _state,
    **dict.fromkeys(("submit", "eligible", "start", "end"), _time),
    **dict.fromkeys(("elapsed", "planned", "suspended"), _duration),
    "timelimit": _limit,
    **dict.fromkeys(
        (
            "uid",
            "gid",
            "nnodes",
            "ncpus",
            "ntasks",
            "reqcpus",
            "alloccpus",
            "allocnodes",
            "elapsedraw",
            "priority",
        ),
        _matches(_WHOLE),
    ),
    **dict.fromkeys(("exitcode", "derivedexitcode"), _matches(_EXIT)),
    **dict.fromkeys(("alloctres", "reqtres", "tresusageinave", "tresusageintot"), _matches(_TRES)),
    "nodelist": _matches(_NODES),
}


def is_aside(line: str) -> bool:
    """Return whether a line is no part of a listing: blank, a comment, a command at a prompt."""
    return not line.strip() or line.startswith(("#", "$ "))


def column_names(pieces: Sequence[str]) -> tuple[str, ...] | None:
    """Return the columns that a line names, None where it is no header; names it does not know are kept."""
    names = [piece.strip().strip("*").lower().partition("%")[0] for piece in pieces]
    names = [_SAME.get(name, name) for name in names]
    known = sum(name in _FIELDS for name in names)
    if known == 0 or known * 2 < len([name for name in names if name]):
        return None
    return tuple(names)


class Layout:
    """Columns in order, and the separator.

    Args:
        names: Columns, as `column_names` gives them.
        separator: What stands between them.
        trailing: Whether every row ends with a separator; a header that does says so itself.
    """

    def __init__(self, names: Sequence[str], separator: str, *, trailing: bool = False) -> None:
        self.separator = separator
        names = list(names)
        self.trailing = trailing or (len(names) > 1 and not names[-1])
        while names and not names[-1]:  # --parsable ends every line with a separator
            names.pop()
        self.names = tuple(names)
        self.index = {name: place for place, name in reversed(list(enumerate(self.names))) if name}
        self._valid = [VALID.get(name) for name in self.names]
        self._checks = [(place, valid) for place, valid in enumerate(self._valid) if valid is not None]
        self._cost = [ABSORBS.get(name, 0 if name in VALID else 6) for name in self.names]
        cheap = [place for place, cost in enumerate(self._cost) if cost]
        self._absorbers = sorted(cheap, key=lambda place: self._cost[place])
        self.first_absorbs = bool(self.names) and self._cost[0] > 0
        self.last_absorbs = bool(self.names) and self._cost[-1] > 0

    def begins(self, line: str) -> bool:
        """Return whether a line looks like the beginning of a row."""
        first = self._valid[0] if self._valid else None
        head, found, _ = line.partition(self.separator)
        if first is None:
            return line.count(self.separator) >= len(self.names) - 1
        return (bool(found) or len(self.names) == 1) and bool(head) and first(head)

    def is_row_but_for_its_id(self, line: str) -> bool:
        """Return whether a line is a whole row with an id that is none."""
        pieces = line.split(self.separator)
        places = [self.index[name] for name in ("jobid", "jobidraw") if name in self.index]
        if len(pieces) != len(self.names):
            return False
        for place in places:
            pieces[place] = "1"
        return self.fits(pieces)

    def fits(self, pieces: Sequence[str]) -> bool:
        """Return whether every piece can stand in its column."""
        if len(pieces) != len(self.names):
            return False
        for place, valid in self._checks:  # noqa: SIM110 - a generator costs more than what it asks
            if not valid(pieces[place]):
                return False
        return True

    def lay_out(self, text: str) -> list[str] | None:
        """Return the columns of a row that has too many pieces, None where no layout fits."""
        pieces = text.split(self.separator)
        extra = len(pieces) - len(self.names)
        if extra < 0:
            return None
        without = self._try(pieces[:-1]) if extra and not pieces[-1] else None
        return (without or self._try(pieces)) if self.trailing else (self._try(pieces) or without)

    def _try(self, pieces: list[str]) -> list[str] | None:
        extra = len(pieces) - len(self.names)
        if not extra:
            return pieces if self.fits(pieces) else None
        for place in self._absorbers:
            if self._cost[place] > 1:
                break
            merged = self._merge(pieces, place, extra)
            if self.fits(merged) and self._likely(merged):
                return merged
        return self._search(pieces, extra)

    def _likely(self, columns: Sequence[str]) -> bool:
        """Return whether the command of a row begins like one, where it has a column for it."""
        place = self.index.get("submitline")
        return place is None or _COMMAND.match(columns[place]) is not None

    def _merge(self, pieces: list[str], place: int, extra: int) -> list[str]:
        end = place + extra + 1
        return [*pieces[:place], self.separator.join(pieces[place:end]), *pieces[end:]]

    def _frame_fits(self, pieces: Sequence[str], extra: int) -> bool:
        """Return whether the columns before the first and behind the last free text hold what they can."""
        if not self._absorbers:
            return False
        first, last = min(self._absorbers), max(self._absorbers)
        return all(
            valid is None or first <= place <= last or valid(pieces[place + (extra if place > last else 0)])
            for place, valid in enumerate(self._valid)
        )

    def _search(self, pieces: list[str], extra: int) -> list[str] | None:
        """Return the cheapest layout over all ways to spread the pieces too many over columns of text."""
        if not self._frame_fits(pieces, extra):
            return None
        # best[used] = (cost, columns so far), after each column, having absorbed `used` pieces too many
        best: dict[int, tuple[int, tuple[str, ...]]] = {0: (0, ())}
        command = self.index.get("submitline")
        for place, valid in enumerate(self._valid):
            after: dict[int, tuple[int, tuple[str, ...]]] = {}
            for used, (cost, done) in best.items():
                most = extra - used if self._cost[place] else 0
                if self._cost[place] >= _DEAR:
                    most = min(most, _FEW)
                for more in range(most + 1):
                    begin = place + used
                    value = self.separator.join(pieces[begin : begin + more + 1])
                    if valid is not None and not valid(value):
                        continue
                    if "\n" in value and self._cost[place] >= _DEAR:
                        continue
                    price = cost + (self._cost[place] if more else 0)
                    if place == command and _COMMAND.match(value) is None:
                        price += _UNLIKELY
                    known = after.get(used + more)
                    if known is None or price < known[0]:
                        after[used + more] = (price, (*done, value))
            best = after
        found = best.get(extra)
        return None if found is None else list(found[1])
