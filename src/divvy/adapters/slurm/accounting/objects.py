"""Records of Slurm's JSON into rows: sacct, squeue, scontrol and sinfo, 21.08 to 25.05.

What changed between versions: numbers became ``{"set", "infinite", "number"}`` in 23.02, states lists in
23.11, ``user`` and ``submit_line`` moved or came. A field is read in every form that it has had; nothing
depends on the version that a document claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from divvy.adapters.slurm import hostlist
from divvy.adapters.slurm.accounting.clock import NO_VALUES, Clock, minutes
from divvy.adapters.slurm.accounting.notes import RowError
from divvy.adapters.slurm.accounting.rows import Raw, Resources, gpus_held, tasks_of
from divvy.adapters.slurm.accounting.states import FATES, state_among
from divvy.adapters.slurm.tres import NO_GPUS, Gpus, Request, count_entries, count_gpus
from divvy.control.audit.jobs import UNKNOWN, Fate, NodeRow
from divvy.units import SECOND

Object = Mapping[str, Any]
_HUNDRED: Final = 100.0
#: States of nodes that give no GPU to anybody.
_OUT: Final = (
    "DOWN",
    "DRAIN",
    "DRAINED",
    "DRAINING",
    "FAIL",
    "FAILING",
    "FUTURE",
    "UNKNOWN",
    "POWERED_DOWN",
    "INVAL",
)


def number(value: Any) -> int | None:
    """Return a number of any version; None where it is not set, infinite or one of Slurm's marks for none.

    Raises:
        ValueError: If it is no number.
    """
    if isinstance(value, Mapping):
        if value.get("set") is False or value.get("infinite"):
            return None
        value = value.get("number")
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a number")
    whole = int(float(value))
    return None if whole in NO_VALUES else whole


def job_of(record: Any, line: int, file: int, clock: Clock) -> Raw:
    """Return what a record says of a job.

    Raises:
        RowError: If it cannot be understood.
    """
    if not isinstance(record, Mapping):
        raise RowError("row-unreadable", f"{str(record)[:60]!r} is not a record of a job")
    job = "?"
    try:
        job, tasks = _id(record)
        return (
            _accounted(record, line, file, job, tasks, clock)
            if _is_accounting(record)
            else _live(record, line, file, job, tasks, clock)
        )
    except RowError:
        raise
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
        word = "state-unknown" if "state of Slurm" in str(error) else "value-unreadable"
        raise RowError(word, f"job {job}: {error}") from error


def _is_accounting(record: Object) -> bool:
    return isinstance(record.get("time"), Mapping)


def _map(value: Any) -> Object:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _id(record: Object) -> tuple[str, int]:
    """Return the id as people write it, and how many tasks of an array it stands for."""
    own = number(record.get("job_id", record.get("id")))
    if own is None:
        raise RowError("job-id", "the record has no job_id")
    array, het = _map(record.get("array")), _map(record.get("het"))
    head = number(array.get("job_id", record.get("array_job_id"))) or 0
    task = number(array.get("task_id", record.get("array_task_id")))
    some = _text(array.get("task", record.get("array_task_string")))
    leader = number(het.get("job_id", record.get("het_job_id"))) or 0
    if head and task is not None:
        return f"{head}_{task}", 1
    if head and some:
        return f"{head}_[{some}]", tasks_of(some)
    if leader:
        part = number(het.get("job_offset", record.get("het_job_offset"))) or 0
        return f"{leader}+{part}", 1
    return str(own), 1


def _moment(value: Any, clock: Clock) -> int:
    if isinstance(value, str) and not value.isdigit():
        return clock.read(value)
    seconds = number(value)
    return UNKNOWN if seconds is None else clock.epoch(seconds)


def _span(value: Any) -> int:
    seconds = number(value)
    return UNKNOWN if seconds is None else seconds * SECOND


def _limit(value: Any) -> int:
    span = number(value)
    return UNKNOWN if span is None else minutes(span)


def _accounted(record: Object, line: int, file: int, job: str, tasks: int, clock: Clock) -> Raw:
    """Read a record of ``sacct --json``."""
    time, tres = _map(record.get("time")), _map(record.get("tres"))
    association = _map(record.get("association"))
    start, elapsed = _moment(time.get("start"), clock), _span(time.get("elapsed"))
    state = state_among(_map(record.get("state")).get("current") or record.get("state") or "")
    nodes = _text(record.get("nodes"))
    never = nodes in hostlist.NOBODY and "nodes" in record and elapsed <= 0
    held = _entries(tres.get("allocated"))
    gpus = held if held is not None else (_entries(tres.get("requested")) or NO_GPUS)
    return Raw(
        line,
        file,
        job,
        state,
        tasks,
        _text(record.get("cluster") or association.get("cluster")),
        _text(record.get("account") or association.get("account")),
        _text(record.get("user") or association.get("user")),
        _text(record.get("qos")),
        _text(record.get("partition")),
        _text(record.get("name")),
        gpus,
        _moment(time.get("submission"), clock),
        _moment(time.get("eligible"), clock),
        start,
        _moment(time.get("end"), clock),
        elapsed,
        _limit(time.get("limit")),
        True,
        never,
        _text(record.get("submit_line")),
        (number(time.get("suspended")) or 0) > 0,
        _use(record.get("steps"), gpus.total),
    )


def _entries(entries: Any) -> Gpus | None:
    """Return the GPUs of a list of TRES, None where the list is empty."""
    if not isinstance(entries, list) or not entries:
        return None
    try:
        return count_entries(entry for entry in entries if isinstance(entry, Mapping))
    except ValueError as error:
        raise RowError("gpus-unreadable", str(error)) from error


def _use(steps: Any, gpus: int) -> float:
    """Return the use of the busiest step, 0 to 1; negative where no step tells it."""
    best = -1.0
    for step in steps if isinstance(steps, list) else ():
        consumed = _map(_map(_map(step).get("tres")).get("consumed"))
        for entry in consumed.get("total") or ():
            if (
                _map(entry).get("type") == "gres"
                and str(_map(entry).get("name", "")).split(":")[0] == "gpuutil"
            ):
                best = max(best, float(entry.get("count") or 0) / max(gpus, 1) / _HUNDRED)
    return min(best, 1.0)


def _live(record: Object, line: int, file: int, job: str, tasks: int, clock: Clock) -> Raw:
    """Read a record of ``squeue --json`` or ``scontrol show job --json``, or of a line of own fields."""
    state = state_among(record.get("job_state") or record.get("state") or "")
    start, end = _moment(record.get("start_time"), clock), _moment(record.get("end_time"), clock)
    fate = FATES[state]
    limit = _limit(record.get("time_limit"))
    if fate is Fate.RUNNING and start == UNKNOWN and UNKNOWN not in (end, limit):
        start = end - limit
    request = Request(
        _text(record.get("tres_per_job")),
        _text(record.get("tres_per_node")),
        _text(record.get("tres_per_socket")),
        _text(record.get("tres_per_task")),
        number(record.get("node_count")) or 1,
        number(record.get("sockets_per_node")) or 1,
        number(record.get("tasks")) or 1,
    )
    told = Resources(_text(record.get("tres_alloc_str")), _text(record.get("tres_req_str")), "", "", request)
    return Raw(
        line,
        file,
        job,
        state,
        tasks,
        _text(record.get("cluster")),
        _text(record.get("account", record.get("a"))),
        _text(record.get("user_name") or record.get("user") or record.get("user_id")),
        _text(record.get("qos")),
        _text(record.get("partition", record.get("p"))),
        _text(record.get("name")),
        gpus_held(told),
        _moment(record.get("submit_time"), clock),
        _moment(record.get("eligible_time"), clock),
        start,
        end,
        UNKNOWN,
        limit,
        "submit_time" in record or "start_time" in record,
        False,
        _text(record.get("submit_line")),
        (number(record.get("suspend_time")) or 0) > 0,
    )


def nodes_of(kind: str, record: Any) -> Iterator[NodeRow]:
    """Yield the nodes of a record of ``scontrol show node --json`` or ``sinfo --json``.

    Raises:
        RowError: If it cannot be understood.
    """
    if not isinstance(record, Mapping):
        raise RowError("row-unreadable", f"{str(record)[:60]!r} is not a record of a node")
    try:
        if kind == "sinfo":
            names = [str(name) for name in _map(record.get("nodes")).get("nodes") or ()]
            gres = _text(_map(record.get("gres")).get("total"))
            state = _map(record.get("node")).get("state")
        else:
            names = [str(record["name"])]
            gres, state = _text(record.get("gres")), record.get("state")
        flags = record.get("state_flags") or []
        found = largest(count_gpus(gres), count_gpus(_text(record.get("tres"))))
    except (KeyError, ValueError, TypeError) as error:
        raise RowError("node-unreadable", f"a record of a node cannot be read: {error}") from error
    words = [*(state if isinstance(state, list) else [_text(state)]), *flags]
    for name in names:
        yield NodeRow(name, found.total, found.model, in_service([str(word) for word in words]))


def largest(one: Gpus, other: Gpus) -> Gpus:
    """Return the richer of two accounts of the same node: types are in GRES, CfgTRES may lack GPUs."""
    best = one if one.total >= other.total else other
    models = one.models or other.models
    return best._replace(models=models)


def in_service(states: list[str]) -> bool:
    """Return whether a node in these states (``MIXED``, ``idle*``, ``DOWN+DRAIN``) runs jobs."""
    words = [word.strip("*~#!%$@^- ").upper() for state in states for word in state.split("+")]
    return not any(word in _OUT or word.startswith("NOT_RESPONDING") for word in words)
