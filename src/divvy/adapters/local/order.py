"""What the engine tells the shim: the run's order, with its environment and its limits."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from divvy.adapters.local.cgroup import Group, Limits
from divvy.adapters.local.devices import Assignment, Book, Device
from divvy.control.launch import LaunchSpec, directory_name, run_variables
from divvy.control.ports import Launch
from divvy.units import SECOND

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Treatment:
    """How the engine treats every run.

    Attributes:
        cores_per_slot: Hard limit of CPU time, cores per device; 0 shares the CPUs by weight only.
        switch_user: Whether runs change to their submitter; only root can.
        hide_gpus: Whether the machine has GPUs that are not offered, so that runs must not see them.
    """

    cores_per_slot: float = 0
    switch_user: bool = field(default_factory=lambda: os.geteuid() == 0)
    hide_gpus: bool = False


def run_key(job: str, attempt: int) -> str:
    """Return the name of a run in file names, cgroups and messages."""
    return f"{directory_name(job)}.{attempt}"


def limits(launch: LaunchSpec, assignment: Assignment, book: Book, treatment: Treatment) -> Limits:
    """Return what a run may use, given its devices."""
    slots = len(book.devices(assignment))
    return Limits(
        slots,
        launch.memory_bytes,
        slots * treatment.cores_per_slot,
        tuple(device.minor for device in book.others(assignment) if device.minor >= 0),
    )


def slot_variables(
    launch: Launch,
    assignment: Assignment,
    devices: Sequence[Device],
    *,
    contained: bool,
    hide_gpus: bool = False,
) -> dict[str, str]:
    """Return the variables by which a run learns what it was given.

    Args:
        launch: The order.
        assignment: Its devices by node.
        devices: The same devices.
        contained: Whether the run can open its own GPUs only. CUDA then counts from 0 what it can open;
            otherwise it counts all GPUs of the machine.
        hide_gpus: Whether the run is given CPU slots beside GPUs that are not its own.
    """
    ordinals = [str(device.ordinal) for device in devices]
    visible = [str(number) for number in range(len(devices))] if contained else ordinals
    variables = {
        **run_variables(launch.job, launch.attempt, launch.spec),
        "DIVVY_DEVICES": ",".join(ordinals),
        "DIVVY_NODES": ",".join(f"{name}:{len(indices)}" for name, indices in assignment),
        "CUDA_VISIBLE_DEVICES": "" if hide_gpus else ",".join(visible),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    uuids = [device.uuid for device in devices if device.uuid]
    if uuids:
        variables["DIVVY_DEVICE_UUIDS"] = ",".join(uuids)
    return variables


def order_document(
    launch: Launch,
    detail: LaunchSpec,
    assignment: Assignment,
    group: Group,
    variables: dict[str, str],
    token: str,
    *,
    notify: str,
    switch: bool,
    resumed: bool = False,
) -> dict[str, Any]:
    """Return the order as the shim reads it from `order.json`; all that a later engine must know is in it."""
    env = {"PATH": DEFAULT_PATH, **dict(detail.env), **variables, "DIVVY_RUN": token}
    return {
        "job": launch.job,
        "attempt": launch.attempt,
        "key": run_key(launch.job, launch.attempt),
        "notify": notify,
        "argv": list(detail.command(resumed=resumed)),
        "cwd": detail.cwd,
        "env": [list(pair) for pair in env.items()],
        "user": detail.user,
        "uid": detail.uid,
        "gid": detail.gid,
        "switch": switch,
        "devices": [[name, list(indices)] for name, indices in assignment],
        "groups": list(group.paths),
        "oom": group.oom,
        "memory_bytes": detail.memory_bytes,
        "lacking": list(group.lacking),
        "token": token,
        "warn_signal": int(signal.Signals[detail.warn_signal]) if detail.warn_signal else 0,
        "warn_ms": round(detail.warn_seconds * SECOND) if detail.warn_signal else 0,
        "grace_ms": round(detail.grace_seconds * SECOND),
        "limit_ms": launch.spec.time_limit,
    }


def read_assignment(order: dict[str, Any]) -> Assignment:
    """Return the devices in an order document."""
    return tuple((str(name), tuple(int(index) for index in indices)) for name, indices in order["devices"])
