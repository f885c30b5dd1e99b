"""Slurm's commands for reading: what to run, and what their text means. Pure; tested on recorded text.

``squeue`` is asked for its fields with a separator that no name can hold, untruncated, one task per line, and
times as seconds (``SLURM_TIME_FORMAT=%s``). ``scontrol --oneliner`` is read for nodes, reservations and,
where a job lies unevenly on several nodes, for how many GPUs it has on each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from divvy.adapters.slurm import hostlist
from divvy.adapters.slurm.record import PastRun, Reservation, SlurmJob, SlurmNode
from divvy.adapters.slurm.tres import NO_GPUS, Gpus, count_gpus

UNIT: Final = "\x1f"
RECORD: Final = "\x1e"
ENVIRONMENT: Final = {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}

_FIELDS: Final = (
    "JobArrayID",
    "HetJobID",
    "State",
    "Reason",
    "UserName",
    "Account",
    "Partition",
    "tres-alloc",
    "tres-per-node",
    "NumNodes",
    "NodeList",
    "PriorityLong",
    "Nice",
    "admin_comment",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "Requeue",
    "RestartCnt",
    "exit_code",
    "BatchFlag",
    "Reservation",
    "Dependency",
    "Name",
    "Comment",
)
_NOTHING: Final = frozenset({"", "N/A", "(null)", "NONE", "None", "Unknown", "UNLIMITED", "INVALID"})

QUEUE: Final = (
    "squeue",
    "--noheader",
    "--array",
    "--states=all",
    "--Format=" + ",".join(f"{name}:{UNIT}" for name in _FIELDS[:-1]) + f",{_FIELDS[-1]}:{RECORD}",
)
NODES: Final = ("scontrol", "--oneliner", "--details", "show", "nodes")
RESERVATIONS: Final = ("scontrol", "--oneliner", "show", "reservations")
JOB_DETAILS: Final = ("scontrol", "--oneliner", "--details", "show", "jobs")
_PAST: Final = (
    "JobID",
    "State",
    "Start",
    "End",
    "AllocTRES",
    "NodeList",
    "ExitCode",
    "Submit",
    "Account",
    "User",
    "Partition",
    "JobName",
    "Comment",
)


def accounting(jobs: Iterable[str]) -> tuple[str, ...]:
    """Return the command that tells every run of some jobs, requeued ones included."""
    options = ("--duplicates", "--allocations", "--noheader", "--parsable2", f"--delimiter={UNIT}")
    names = ",".join(sorted(jobs))
    return ("sacct", *options, f"--format={','.join(_PAST)}", f"--jobs={names}")


def since(ago_seconds: int) -> tuple[str, ...]:
    """Return the command that tells every run of everybody in the last so many seconds."""
    options = ("--duplicates", "--allocations", "--noheader", "--parsable2", f"--delimiter={UNIT}")
    return ("sacct", *options, f"--format={','.join(_PAST)}", "--allusers", f"--starttime=now-{ago_seconds}")


# -- jobs ----------------------------------------------------------------------------------------------


def read_queue(text: str) -> dict[str, SlurmJob]:
    """Return the jobs that `QUEUE` printed, by id; a heterogeneous job is joined into one.

    Raises:
        ValueError: If a record has not all fields, or a number in it is none.
    """
    jobs: dict[str, SlurmJob] = {}
    for record in text.split(RECORD):
        values = record.lstrip("\n").split(UNIT)
        if len(values) == 1 and not values[0].strip():
            continue
        if len(values) != len(_FIELDS):
            raise ValueError(f"squeue: a record of {len(values)} fields instead of {len(_FIELDS)}")
        job = _job(dict(zip(_FIELDS, (value.strip() for value in values), strict=True)))
        known = jobs.get(job.id)
        jobs[job.id] = job if known is None else join(known, job)
    return jobs


def _job(row: Mapping[str, str]) -> SlurmJob:
    whole = row["HetJobID"] if row["HetJobID"] not in _NOTHING and row["HetJobID"] != "0" else ""
    gpus, request = count_gpus(row["tres-alloc"]), count_gpus(row["tres-per-node"])
    if request.shards and not gpus.shards:
        gpus = gpus._replace(shards=request.shards)
    return SlurmJob(
        id=whole or row["JobArrayID"],
        state=row["State"],
        reason=row["Reason"],
        user=row["UserName"],
        account=_text(row["Account"]),
        partition=row["Partition"],
        gpus=gpus,
        per_node=request.total,
        nodes=hostlist.expand(row["NodeList"]),
        node_count=int(row["NumNodes"].partition("-")[0] or 1),
        priority=int(row["PriorityLong"] or 0),
        nice=int(row["Nice"] or 0),
        mark=_text(row["admin_comment"]),
        comment=_text(row["Comment"]),
        name=row["Name"],
        submit=_instant(row["SubmitTime"]),
        eligible=_instant(row["EligibleTime"]),
        start=_instant(row["StartTime"]),
        end=_instant(row["EndTime"]),
        limit=_limit(row["TimeLimit"]),
        requeue=row["Requeue"] == "1",
        restarts=int(row["RestartCnt"] or 0),
        exit_code=_status(row["exit_code"]),
        batch=row["BatchFlag"] == "1",
        reservation=_text(row["Reservation"]),
        dependency=_text(row["Dependency"]),
    )


def join(one: SlurmJob, other: SlurmJob) -> SlurmJob:
    """Return two components of a heterogeneous job as one; the first that waits speaks for both."""
    first = one if one.waits or not other.waits else other
    spread = dict[str, int]()
    for part in (one, other):
        for name, gpus in part.spread or even(part):
            spread[name] = spread.get(name, 0) + gpus
    both = (one.gpus, other.gpus)
    models = dict[str, int]()
    for name, count in (pair for gpus in both for pair in gpus.models):
        models[name] = models.get(name, 0) + count
    return replace(
        first,
        gpus=Gpus(sum(g.total for g in both), tuple(sorted(models.items())), sum(g.shards for g in both)),
        per_node=0,
        nodes=tuple(dict.fromkeys((*one.nodes, *other.nodes))),
        node_count=one.node_count + other.node_count,
        spread=tuple(spread.items()),
        mark=one.mark or other.mark,
        comment=one.comment or other.comment,
        limit=max(one.limit, other.limit) if one.limit and other.limit else 0,
        end=max(one.end, other.end),
    )


def even(job: SlurmJob) -> tuple[tuple[str, int], ...]:
    """Return a job's GPUs per node where they follow from what it asked for; empty where they do not."""
    count, nodes = job.gpus.total, len(job.nodes)
    if not nodes or not count:
        return ()
    if nodes == 1:
        return ((job.nodes[0], count),)
    if count == nodes or (job.per_node and job.per_node * nodes == count):
        return tuple((name, count // nodes) for name in job.nodes)
    return ()


def read_spread(text: str) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return the GPUs per node of every running job that `JOB_DETAILS` printed."""
    found: dict[str, dict[str, int]] = {}
    for line in text.splitlines():
        pairs = [word.partition("=")[::2] for word in line.split()]
        words = dict(reversed(pairs))  # the first of a name counts: later ones may be of a comment
        task = words.get("ArrayTaskId", "")
        job = words.get("HetJobId") or (
            f"{words['ArrayJobId']}_{task}" if task.isdecimal() else words.get("JobId", "")
        )
        here: tuple[str, ...] = ()
        for name, value in pairs:
            if name == "Nodes":
                here = hostlist.expand(value)
            elif name == "GRES" and here:
                held = found.setdefault(job, {})
                for node in here:
                    held[node] = held.get(node, 0) + count_gpus(value).total
                here = ()
    return {job: tuple((node, gpus) for node, gpus in held.items() if gpus) for job, held in found.items()}


# -- nodes and reservations ----------------------------------------------------------------------------

_KEY: Final = re.compile(r"(?:^| )([A-Za-z_/]+)=")


def _words(line: str) -> Iterator[tuple[str, str]]:
    """Yield the ``Key=value`` pairs of a line; a value may hold spaces."""
    found = list(_KEY.finditer(line))
    for place, match in enumerate(found, start=1):
        end = found[place].start() if place < len(found) else len(line)
        yield match.group(1), line[match.end() : end].strip()


def read_nodes(text: str) -> dict[str, SlurmNode]:
    """Return the nodes with GPUs that `NODES` printed, by name."""
    nodes: dict[str, SlurmNode] = {}
    for line in text.splitlines():
        row: dict[str, str] = {}
        for key, value in _words(line):
            row.setdefault(key, value)
        gpus = count_gpus(row.get("Gres", ""))
        if not gpus.total or "NodeName" not in row:
            continue
        nodes[row["NodeName"]] = SlurmNode(
            name=row["NodeName"],
            gpus=gpus._replace(shards=0, notes=()),
            shared=shared_gpus(row.get("GresUsed", ""), gpus),
            state=row.get("State", ""),
            reason=_text(row.get("Reason", "")),
            partitions=tuple(row.get("Partitions", "").split(",")),
        )
    return nodes


_PART_USE: Final = re.compile(r"(\d+)/\d+")
_SHARD_USE: Final = re.compile(r"shard(?::[^:,(]+)?:(\d+)\(([^)]*)\)")


def shared_gpus(used: str, gpus: Gpus) -> int:
    """Return how many GPUs are cut into shards now: ``shard:a100:5(1/4,4/4,0/4)`` are two."""
    busy = 0
    for count, places in _SHARD_USE.findall(used):
        parts = _PART_USE.findall(places)
        if parts:
            busy += sum(part != "0" for part in parts)
        elif int(count):
            each = max(gpus.shards // gpus.total, 1) if gpus.shards else 1
            listed = places.removeprefix("IDX:")
            listed_count = len(hostlist.expand(f"[{listed}]")) if listed and listed != "N/A" else 0
            busy += max(listed_count, -(-int(count) // each))
    return min(busy, gpus.total)


def read_reservations(text: str) -> dict[str, Reservation]:
    """Return the reservations that `RESERVATIONS` printed, by name."""
    found: dict[str, Reservation] = {}
    for line in text.splitlines():
        row = dict(_words(line))
        if "ReservationName" in row:
            found[row["ReservationName"]] = Reservation(
                row["ReservationName"],
                _instant(row.get("StartTime", "")),
                _instant(row.get("EndTime", "")),
                hostlist.expand(row.get("Nodes", "")),
                tuple(name for name in _text(row.get("Users", "")).split(",") if name),
                row.get("State") == "ACTIVE",
            )
    return found


# -- accounting ----------------------------------------------------------------------------------------


def read_accounting(text: str) -> dict[str, tuple[PastRun, ...]]:
    """Return the runs that `accounting` or `since` printed, by job, in order of their starts.

    Raises:
        ValueError: If a line has not all fields.
    """
    found: dict[str, list[PastRun]] = {}
    for line in text.splitlines():
        values = line.split(UNIT)
        if len(values) != len(_PAST):
            raise ValueError(f"sacct: a line of {len(values)} fields instead of {len(_PAST)}")
        row = dict(zip(_PAST, values, strict=True))
        job = row["JobID"].partition("+")[0]
        gpus = count_gpus(row["AllocTRES"]) if row["AllocTRES"] else NO_GPUS
        run = PastRun(
            job,
            row["State"].partition(" ")[0],
            _instant(row["Start"]),
            _instant(row["End"]),
            gpus,
            hostlist.expand(row["NodeList"]),
            _code(row["ExitCode"]),
            _instant(row["Submit"]),
            *(row[name] for name in ("Account", "User", "Partition", "JobName", "Comment")),
        )
        found.setdefault(job, []).append(run)
    return {job: tuple(sorted(runs, key=lambda run: run.start)) for job, runs in found.items()}


# -- words ---------------------------------------------------------------------------------------------


def _text(value: str) -> str:
    return "" if value in _NOTHING else value


def _instant(value: str) -> int:
    """Return seconds since the epoch as ms; 0 where Slurm has no time."""
    return int(value) * 1000 if value.isdecimal() else 0


def _limit(value: str) -> int:
    """Return ``2-03:04:05`` as ms; 0 for no limit."""
    if not value[:1].isdecimal():
        return 0
    days, dash, clock = value.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if dash:  # days-hours[:minutes[:seconds]]
        parts += [0] * (3 - len(parts))
    else:  # [hours:]minutes:seconds
        parts = [0] * (3 - len(parts)) + parts
    hours, minutes, seconds = parts
    return (((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def _status(value: str) -> int | None:
    """Return squeue's wait status as an exit code."""
    if not value.isdecimal():
        return None
    status = int(value)
    return status >> 8 or (128 + (status & 0x7F) if status & 0x7F else 0)


def _code(value: str) -> int | None:
    """Return sacct's ``code:signal`` as an exit code."""
    code, _, number = value.partition(":")
    if not code.isdecimal():
        return None
    return 128 + int(number) if number.isdecimal() and int(number) and not int(code) else int(code)


def chunks(jobs: Sequence[str], most_bytes: int = 60_000) -> Iterator[list[str]]:
    """Yield job ids in lists that fit into one argument of a command."""
    part: list[str] = []
    size = 0
    for job in jobs:
        if part and size + len(job) + 1 > most_bytes:
            yield part
            part, size = [], 0
        part.append(job)
        size += len(job) + 1
    if part:
        yield part
