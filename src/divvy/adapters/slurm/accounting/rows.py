"""From what a file says of a job to a row of the audit, the same way for every format."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from divvy.adapters.slurm.accounting import clock
from divvy.adapters.slurm.accounting.notes import RowError
from divvy.adapters.slurm.accounting.states import FATES
from divvy.adapters.slurm.accounting.submit_line import gpus_of, is_session
from divvy.adapters.slurm.hostlist import NOBODY
from divvy.adapters.slurm.tres import (
    MIG,
    NO_GPUS,
    ONLY_IDS,
    SHARDS,
    TRUNCATED,
    TYPES_EXCEED,
    Gpus,
    Request,
    count_gpus,
    of_request,
)
from divvy.control.audit.jobs import UNKNOWN, Fate, JobRow
from divvy.units import MINUTE

#: Tells of doubts about a row that is understood: code and text.
Remark = Callable[[str, str], None]

JOB_ID: Final = re.compile(
    r"(?P<job>\d+)(?:_(?P<task>\d+|\[(?P<tasks>[^\]]*)\]|\*))?(?:\+(?P<part>\d+))?(?:\.(?P<step>\S+))?",
    re.ASCII,
)
_TASKS: Final = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
_SESSION_NAME: Final = re.compile(
    r"(?:^|[/_\W])(?:interactive|bash|zsh|sh|tcsh|fish|jupyter\w*|notebook|lab|ipython|vscode|code-?server|code|"
    r"rstudio\w*|vnc\w*|desktop|tmux|screen|sleep\w*|tunnel|sshd?|salloc|ondemand|dashboard|debug|idle|hold\w*)"
    r"(?:$|[/_\W\d])",
    re.IGNORECASE,
)
_WORDS: Final = {
    MIG: "MIG instances are held; Slurm counts each as one GPU, and so does this report",
    SHARDS: "parts of shared GPUs (shard, mps) are held; they are not counted as GPUs",
    TRUNCATED: "the TRES text is cut off; GPUs may be missing",
    ONLY_IDS: "TRES are told by numbers of the database; GPUs cannot be told among them",
    TYPES_EXCEED: "the typed GPUs are more than gres/gpu says; the typed ones are counted",
}
FROM_LINE: Final = (
    "the accounting holds no GPUs (AccountingStorageTRES); taken from the command that submitted the job"
)
_SLACK: Final = MINUTE


class Raw(NamedTuple):
    """What one row says, each value read; `finish` makes sense of it."""

    line: int
    file: int
    job: str
    state: str
    tasks: int = 1
    cluster: str = ""
    account: str = ""
    user: str = ""
    qos: str = ""
    partition: str = ""
    name: str = ""
    gpus: Gpus = NO_GPUS
    submit: int = UNKNOWN
    eligible: int = UNKNOWN
    start: int = UNKNOWN
    end: int = UNKNOWN
    elapsed: int = UNKNOWN
    limit: int = UNKNOWN
    timed: bool = True
    never: bool = False
    submit_line: str = ""
    suspended: bool = False
    use: float = -1.0


def finish(raw: Raw, remark: Remark) -> JobRow:
    """Return the row of the audit.

    Raises:
        RowError: If the row contradicts itself or lacks what its state needs.
    """
    state, submit, eligible, start, end, elapsed = raw.state, *raw[12:17]
    fate, seen = FATES[state], UNKNOWN
    if fate < Fate.ENDED or raw.never or UNKNOWN in (start, end) or end - start != elapsed:
        fate, start, end, seen = _times(raw, remark)
    gpus, submit_line = raw.gpus, raw.submit_line
    if submit_line and not (gpus.total or gpus.shards):
        gpus = gpus_of(submit_line)
        if gpus.total:
            remark("gpus-from-submit-line", FROM_LINE)
    for note in gpus.notes:
        remark(note, _WORDS[note])
    if submit > start != UNKNOWN:
        remark("start-before-submit", "started before it was submitted; its wait counts as 0")
    session = gpus.total > 0 and (_session_name(raw.name) or (submit_line != "" and is_session(submit_line)))
    return JobRow(
        *raw[:3],
        *raw[5:11],
        gpus.total,
        gpus.model,
        gpus.shards,
        raw.tasks,
        submit if submit != UNKNOWN else eligible,
        eligible,
        start,
        end,
        seen,
        raw.limit,
        state,
        fate,
        session,
        raw.use,
    )


def _times(raw: Raw, remark: Remark) -> tuple[Fate, int, int, int]:
    """Return what became of a run, its start and end, and until when it was seen to run."""
    fate, start, end, seen = FATES[raw.state], raw.start, raw.end, UNKNOWN
    if fate is Fate.REQUEUED and (start == UNKNOWN or (end == UNKNOWN and raw.elapsed <= 0)):
        fate = Fate.WAITING
    if fate is Fate.RUNNING and start == UNKNOWN and raw.state not in ("RUNNING", "SUSPENDED"):
        fate = Fate.WAITING  # a requeued job whose last run is still being cleaned up
    if fate is Fate.WAITING:
        return fate, UNKNOWN, UNKNOWN, UNKNOWN
    if raw.never:
        start = UNKNOWN
    if start == UNKNOWN and raw.timed and (fate is Fate.RUNNING or raw.elapsed > 0 or raw.submit == UNKNOWN):
        raise RowError("time-missing", f"job {raw.job} is {raw.state}, and its start is not known")
    if fate is Fate.RUNNING:
        end = UNKNOWN
        seen = start + raw.elapsed if start != UNKNOWN and raw.elapsed > 0 else UNKNOWN
    elif start != UNKNOWN:
        end = _end(raw, remark)
    return fate, start, end, seen


def _end(raw: Raw, remark: Remark) -> int:
    """Return when a run that is over ended."""
    start, end, elapsed = raw.start, raw.end, raw.elapsed
    if end == UNKNOWN:
        if elapsed == UNKNOWN:
            raise RowError("time-missing", f"job {raw.job} is {raw.state}, and its end is not known")
        remark("end-from-elapsed", "the end is not known; it is the start and the elapsed time")
        return start + elapsed
    if elapsed != UNKNOWN and end - start != elapsed:
        mended = clock.mend(start, end, elapsed)
        if mended != end:
            remark("clock-change", "the clock was changed during the run; Slurm's elapsed time is used")
            end = mended
        elif end >= start and abs(end - start - elapsed) > _SLACK and not raw.suspended:
            remark("elapsed-differs", "start to end is not the elapsed time; start and end are used")
    if end < start:
        raise RowError("time-order", f"job {raw.job} ends before it starts")
    return end


class Resources(NamedTuple):
    """The texts of a row that may tell its GPUs."""

    alloc_tres: str = ""
    req_tres: str = ""
    alloc_gres: str = ""
    req_gres: str = ""
    request: Request = Request()


def gpus_held(told: Resources) -> Gpus:
    """Return the GPUs of a job: allocated where that is told, else asked for.

    The order: AllocTRES (with --exclusive it holds GPUs that nobody asked for), ReqTRES, AllocGRES and
    ReqGRES (older, of all nodes together), then what was asked per job, node, task or socket.

    Raises:
        RowError: If a number of GPUs cannot be one.
    """
    try:
        if told.alloc_tres not in NOBODY:
            found = count_gpus(told.alloc_tres)
            if found.total or found.shards or "gres/gpu" in told.alloc_tres:
                return found
            # Slurm that keeps no GPUs in TRES may still tell the request.
            return of_request(told.request) if "gres/" not in told.req_tres else found
        for text in (told.req_tres, told.alloc_gres, told.req_gres):
            found = count_gpus(text)
            if found.total or found.shards:
                return found
        return of_request(told.request)
    except ValueError as error:
        raise RowError("gpus-unreadable", str(error)) from error


@lru_cache(maxsize=65_536)
def _session_name(name: str) -> bool:
    return _SESSION_NAME.search(name) is not None


@lru_cache(maxsize=4096)
def tasks_of(text: str) -> int:
    """Return how many tasks ``1-3,7`` or ``0-99:10%5`` names; 1 where Slurm has cut it off.

    Raises:
        RowError: If it names none.
    """
    total = 0
    for part in text.partition("%")[0].split(","):
        if part.strip() in ("...", ""):
            continue
        found = _TASKS.fullmatch(part.strip().removesuffix("..."))
        if found is None:
            raise RowError("job-id", f"[{text}] is not a list of tasks")
        first, last, step = (
            int(found.group(1)),
            int(found.group(2) or found.group(1)),
            int(found.group(3) or 1),
        )
        total += max((last - first) // max(step, 1) + 1, 0)
    return max(total, 1)
