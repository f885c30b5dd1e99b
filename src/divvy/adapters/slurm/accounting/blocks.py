"""``scontrol show job|node``: records of ``Key=Value``, on one line each (-o) or on many."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from divvy.adapters.slurm.accounting.clock import NO_TIME, Clock, duration, limit
from divvy.adapters.slurm.accounting.layout import is_aside
from divvy.adapters.slurm.accounting.notes import RowError
from divvy.adapters.slurm.accounting.objects import in_service, largest
from divvy.adapters.slurm.accounting.rows import JOB_ID, Raw, Resources, gpus_held, tasks_of
from divvy.adapters.slurm.accounting.states import state_of
from divvy.adapters.slurm.hostlist import NOBODY, expand
from divvy.adapters.slurm.tres import Request, count_gpus
from divvy.control.audit.jobs import NodeRow

BEGINS: Final = re.compile(r"\s*(JobId|NodeName|PartitionName|ReservationName|StepId)=")
#: A value may hold blanks (a name, a reason); the next key ends it.
_NEXT_KEY: Final = re.compile(r"\s+(?=[A-Z][\w:/]*=)")
_USER: Final = re.compile(r"(.*)\(\d+\)")

Fields = dict[str, str]


def blocks(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Fields]]:
    """Yield every record and the line where it begins; what stands before the first is left out."""
    began, parts = 0, list[str]()
    for number, line in lines:
        if BEGINS.match(line):
            if parts:
                yield began, _fields(" ".join(parts))
            began, parts = number, [line.strip()]
        elif parts and not is_aside(line):
            parts.append(line.strip())
    if parts:
        yield began, _fields(" ".join(parts))


def _fields(text: str) -> Fields:
    found: Fields = {}
    for piece in _NEXT_KEY.split(text):
        key, equals, value = piece.partition("=")
        if equals:
            found.setdefault(key, value.strip())
    return found


def job_of(fields: Fields, line: int, file: int, clock: Clock) -> Raw:
    """Return what a record says of a job.

    Raises:
        RowError: If it cannot be understood.
    """
    job = fields.get("JobId", "")
    try:
        job, tasks = _id(fields, job)
        user = fields.get("UserId", "")
        named = _USER.fullmatch(user)
        timed = any(key in fields for key in ("SubmitTime", "StartTime"))
        return Raw(
            line,
            file,
            job,
            state_of(fields.get("JobState", "")),
            tasks,
            "",
            _word(fields.get("Account")),
            named.group(1) if named else user,
            _word(fields.get("QOS")),
            _word(fields.get("Partition")),
            fields.get("JobName", ""),
            gpus_held(_resources(fields)),
            clock.read(fields.get("SubmitTime", "")),
            clock.read(fields.get("EligibleTime", "")),
            clock.read(fields.get("StartTime", "")),
            clock.read(fields.get("EndTime", "")),
            duration(fields.get("RunTime", "")),
            limit(fields.get("TimeLimit", "")),
            timed,
            False,
            "",
            fields.get("SuspendTime", "None") not in NO_TIME,
        )
    except RowError:
        raise
    except ValueError as error:
        word = "state-unknown" if "state of Slurm" in str(error) else "value-unreadable"
        raise RowError(word, f"job {job}: {error}") from error


def _id(fields: Fields, job: str) -> tuple[str, int]:
    if JOB_ID.fullmatch(job) is None:
        raise RowError("job-id", f"{job[:40]!r} is not the id of a job")
    head, task = fields.get("ArrayJobId", ""), fields.get("ArrayTaskId", "")
    if head and task and task not in NOBODY:
        return (f"{head}_{task}", 1) if task.isdigit() else (f"{head}_[{task}]", tasks_of(task))
    if fields.get("HetJobId", "0") != "0":
        return f"{fields['HetJobId']}+{fields.get('HetJobOffset', '0')}", 1
    return job, 1


def _word(text: str | None) -> str:
    return "" if text is None or text in NOBODY else text


def _resources(fields: Fields) -> Resources:
    """Return the texts on GPUs: ``TRES`` up to 23.02 is the allocation, or the request of what waits."""
    request = Request(
        fields.get("TresPerJob", ""),
        fields.get("TresPerNode", fields.get("Gres", "")),
        fields.get("TresPerSocket", ""),
        fields.get("TresPerTask", ""),
        _number(fields.get("NumNodes", "1")),
        1,
        _number(fields.get("NumTasks", "1")),
    )
    return Resources(
        fields.get("AllocTRES", fields.get("TRES", "")), fields.get("ReqTRES", ""), "", "", request
    )


def _number(text: str) -> int:
    found = re.match(r"\d+", text)
    return int(found.group()) if found else 1


def nodes_of(fields: Fields) -> Iterator[NodeRow]:
    """Yield the node of a record, or the nodes where it names a list, as slurm.conf does.

    Raises:
        RowError: If it cannot be understood.
    """
    name = fields["NodeName"]
    try:
        found = largest(count_gpus(fields.get("Gres", "")), count_gpus(fields.get("CfgTRES", "")))
        names = expand(name)
    except ValueError as error:
        raise RowError("node-unreadable", f"node {name[:60]}: {error}") from error
    for one in names:
        yield NodeRow(one, found.total, found.model, in_service([fields.get("State", "")]))
