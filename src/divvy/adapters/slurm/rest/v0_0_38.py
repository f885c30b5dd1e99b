"""slurmrestd of Slurm 22.05: paths and answers of the API v0.0.38. Pure; the transport is `client`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from divvy.adapters.slurm import hostlist
from divvy.adapters.slurm.record import Reservation, SlurmJob, SlurmNode
from divvy.adapters.slurm.text import join, shared_gpus
from divvy.adapters.slurm.tres import NO_GPUS, Gpus, count_gpus

PATHS: Final = {
    "jobs": "/slurm/v0.0.38/jobs",
    "nodes": "/slurm/v0.0.38/nodes",
    "reservations": "/slurm/v0.0.38/reservations",
}
#: Slurm's marks for "no value" and "no limit" in 32 bits.
_NO_VALUE: Final = 0xFFFFFFFE
_NICE_OFFSET: Final = 0x80000000


def read_jobs(answer: Mapping[str, Any]) -> dict[str, SlurmJob]:
    """Return the jobs of an answer, by id; a heterogeneous job is one, each task of an array is one.

    Raises:
        ValueError: If the answer has no jobs, or a list of tasks was cut short.
    """
    found: dict[str, SlurmJob] = {}
    for row in _listed(answer, "jobs"):
        for name in _names(row):
            job = _job(row, name)
            known = found.get(name)
            found[name] = job if known is None else join(known, job)
    return found


def _listed(answer: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    rows = answer.get(key)
    if answer.get("errors") or not isinstance(rows, list):
        raise ValueError(f"slurmrestd answers without {key}: {answer.get('errors') or 'nothing'}")
    return rows


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ids that a record stands for: one, or every task that was not split off its array yet."""
    if row.get("het_job_id"):
        yield str(row["het_job_id"])
    elif row.get("array_task_string") and row.get("array_task_id") is None:
        text = str(row["array_task_string"]).partition("%")[0]
        if "..." in text:
            raise ValueError(f'the tasks of array {row["array_job_id"]} are cut short; use api = "cli"')
        for number in hostlist.expand(f"[{text}]"):
            yield f"{row['array_job_id']}_{number}"
    elif row.get("array_job_id") and row.get("array_task_id") is not None:
        yield f"{row['array_job_id']}_{row['array_task_id']}"
    else:
        yield str(row["job_id"])


def _job(row: Mapping[str, Any], name: str) -> SlurmJob:
    nodes = hostlist.expand(row.get("nodes") or "")
    asked = count_gpus(row.get("tres_per_node") or "")
    gpus = count_gpus(row.get("tres_alloc_str") or row.get("tres_req_str") or "")
    if asked.shards and not gpus.shards:
        gpus = gpus._replace(shards=asked.shards)
    return SlurmJob(
        id=name,
        state=row.get("job_state") or "",
        reason="job requeued in held state" if _requeued(row) else str(row.get("state_reason") or ""),
        user=row.get("user_name") or "",
        account=row.get("account") or "",
        partition=row.get("partition") or "",
        gpus=gpus,
        per_node=asked.total,
        nodes=nodes,
        node_count=_number(row.get("node_count")) or 1,
        spread=_spread(row, nodes),
        priority=_number(row.get("priority")),
        nice=_nice(row.get("nice")),
        mark=row.get("admin_comment") or "",
        comment=row.get("comment") or "",
        name=row.get("name") or "",
        submit=_number(row.get("submit_time")) * 1000,
        eligible=_number(row.get("eligible_time")) * 1000,
        start=_number(row.get("start_time")) * 1000,
        end=_number(row.get("end_time")) * 1000,
        limit=_number(row.get("time_limit")) * 60_000,
        requeue=bool(row.get("requeue")),
        restarts=_number(row.get("restart_cnt")),
        exit_code=_exit_code(row.get("exit_code")),
        batch=bool(row.get("batch_flag", True)),
        reservation=row.get("resv_name") or "",
        dependency=row.get("dependency") or "",
    )


def _requeued(row: Mapping[str, Any]) -> bool:
    return "requeued in held state" in str(row.get("state_description") or row.get("state_reason") or "")


def _spread(row: Mapping[str, Any], nodes: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Return GPUs per node: the answer has one text per node, in their order."""
    texts = row.get("gres_detail") or []
    if len(texts) != len(nodes):
        return ()
    return tuple((node, count_gpus(text).total) for node, text in zip(nodes, texts, strict=True))


def _number(value: Any) -> int:
    """Return a number; 0 for none, and for Slurm's marks of no value and no limit."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    number = int(value)
    return number if 0 <= number < _NO_VALUE else 0


def _nice(value: Any) -> int:
    if not isinstance(value, int):
        return 0
    return value - _NICE_OFFSET if value > _NICE_OFFSET // 2 else value


def _exit_code(value: Any) -> int | None:
    """Return a wait status as an exit code."""
    if not isinstance(value, int):
        return None
    return value >> 8 or (128 + (value & 0x7F) if value & 0x7F else 0)


def read_nodes(answer: Mapping[str, Any]) -> dict[str, SlurmNode]:
    """Return the nodes with GPUs of an answer, by name.

    Raises:
        ValueError: If the answer has no nodes.
    """
    found: dict[str, SlurmNode] = {}
    for row in _listed(answer, "nodes"):
        gpus: Gpus = count_gpus(row.get("gres") or "") if row.get("gres") else NO_GPUS
        if gpus.total:
            words = [str(row.get("state") or ""), *(row.get("state_flags") or [])]
            found[row["name"]] = SlurmNode(
                row["name"],
                gpus._replace(shards=0, notes=()),
                shared_gpus(row.get("gres_used") or "", gpus),
                "+".join(words).upper(),
                row.get("reason") or "",
                tuple(row.get("partitions") or ()),
            )
    return found


def read_reservations(answer: Mapping[str, Any], now: int) -> dict[str, Reservation]:
    """Return the reservations of an answer, by name; ``now`` (ms) tells which hold.

    Raises:
        ValueError: If the answer has no reservations.
    """
    found: dict[str, Reservation] = {}
    for row in _listed(answer, "reservations"):
        start, end = _number(row.get("start_time")) * 1000, _number(row.get("end_time")) * 1000
        users = tuple(name for name in (row.get("users") or "").split(",") if name)
        nodes = hostlist.expand(row.get("node_list") or "")
        found[row["name"]] = Reservation(row["name"], start, end, nodes, users, start <= now < end)
    return found
