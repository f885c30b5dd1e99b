"""The files of a sandbox: slurm.conf, gres.conf, slurmdbd.conf and device files that lead nowhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Ports(NamedTuple):
    """Ports of the daemons; that of node n is ``node + n``, from 1."""

    database: int
    controller: int
    accounting: int
    node: int


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one kind.

    Attributes:
        count: How many.
        gres: What each has, by GPU type, such as ``{"h100": 4}``.
        shards: Shares that its GPUs are cut into, all together; 0: none.
        cpus: Processors of each.
    """

    count: int
    gres: Mapping[str, int]
    shards: int = 0
    cpus: int = 64


@dataclass(frozen=True, slots=True)
class Layout:
    """What the sandbox offers.

    Attributes:
        nodes: Groups of nodes, numbered through: ``node01``, ``node02`` and so on.
        partitions: Further partitions by name: the numbers of their nodes. ``all`` holds every node.
        cred_expire_seconds: How long a requeued job waits before it may start again (Slurm's default: 120).
        settings: Further lines of slurm.conf, by name; they replace the lines of the same name.
        lua: A job_submit script; empty: none.
    """

    nodes: tuple[NodeGroup, ...]
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    cred_expire_seconds: int = 5
    settings: Mapping[str, str] = field(default_factory=dict)
    lua: str = ""

    def names(self) -> list[str]:
        """Return the names of all nodes."""
        count = sum(group.count for group in self.nodes)
        return [f"node{number:02d}" for number in range(1, count + 1)]


def write_files(root: Path, layout: Layout, ports: Ports) -> None:
    """Write the configuration and make the device files of a sandbox."""
    etc = root / "etc"
    _write(etc / "slurmdbd.conf", _slurmdbd(root, ports), mode=0o600)
    nodes, gres = _nodes(root, layout, ports)
    names = layout.names()
    partitions = ["PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP"]
    partitions += (
        f"PartitionName={name} Nodes={','.join(names[n - 1] for n in ids)} MaxTime=INFINITE State=UP"
        for name, ids in layout.partitions.items()
    )
    settings = _settings(root, layout, ports) | dict(layout.settings)
    if layout.lua:
        settings["JobSubmitPlugins"] = "lua"
        _write(etc / "job_submit.lua", layout.lua)
    lines = [f"{key}={value}" for key, value in settings.items()]
    _write(etc / "slurm.conf", "\n".join((*lines, *nodes, *partitions)) + "\n")
    _write(etc / "gres.conf", "\n".join(gres) + "\n")
    most = max(sum(group.gres.values()) for group in layout.nodes)
    for number in range(most):
        device = root / f"dev/nvidia{number}"
        if not device.exists():
            os.mknod(device, 0o666 | 0o020000, os.makedev(195, number))


def _nodes(root: Path, layout: Layout, ports: Ports) -> tuple[list[str], list[str]]:
    """Return the lines of the nodes in slurm.conf and those of gres.conf."""
    nodes, gres, first = [], [], 1
    for group in layout.nodes:
        name = f"node[{first:02d}-{first + group.count - 1:02d}]"
        numbers = f"[{ports.node + first}-{ports.node + first + group.count - 1}]"
        devices = [f"gpu:{kind}:{count}" for kind, count in group.gres.items()]
        offered = ",".join([*devices, *([f"shard:{group.shards}"] if group.shards else [])])
        nodes.append(
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={numbers} CPUs={group.cpus} "
            f"RealMemory=512000 Gres={offered} State=UNKNOWN"
        )
        place = 0
        for kind, count in group.gres.items():
            files = f"{root}/dev/nvidia[{place}-{place + count - 1}]"
            gres.append(f"NodeName={name} Name=gpu Type={kind} File={files}")
            place += count
        if group.shards:
            gres.append(f"NodeName={name} Name=shard Count={group.shards}")
        first += group.count
    return nodes, gres


def _settings(root: Path, layout: Layout, ports: Ports) -> dict[str, str]:
    kinds = dict.fromkeys(kind for group in layout.nodes for kind in group.gres)
    return {
        "ClusterName": "sandbox",
        "SlurmctldHost": "localhost(127.0.0.1)",
        "SlurmctldPort": str(ports.controller),
        "SlurmdPort": str(ports.node),
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={root}/munge/sock,cred_expire={layout.cred_expire_seconds}",
        "StateSaveLocation": f"{root}/state",
        "SlurmdSpoolDir": f"{root}/spool/%n",
        "SlurmctldPidFile": f"{root}/pid/slurmctld",
        "SlurmdPidFile": f"{root}/pid/slurmd.%n",
        "SlurmctldLogFile": f"{root}/log/slurmctld.log",
        "SlurmdLogFile": f"{root}/log/slurmd.%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "MpiDefault": "none",
        "ReturnToService": "2",
        "SlurmdParameters": "config_overrides",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "DefMemPerCPU": "100",
        "GresTypes": "gpu,shard",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "bf_interval=1,sched_min_interval=100000,bf_max_job_test=1000",
        "PriorityType": "priority/multifactor",
        "PreemptType": "preempt/none",
        "JobRequeue": "1",
        "MinJobAge": "300",
        "InactiveLimit": "0",
        "KillWait": "2",
        "SlurmctldTimeout": "30",
        "SlurmdTimeout": "30",
        "MaxArraySize": "20001",
        "MaxJobCount": "50000",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "localhost",
        "AccountingStoragePass": f"{root}/munge/sock",
        "AccountingStoragePort": str(ports.accounting),
        "AccountingStorageTRES": ",".join(["gres/gpu", *(f"gres/gpu:{kind}" for kind in kinds)]),
        "AccountingStorageEnforce": "associations",
        "AccountingStoreFlags": "job_comment",
        "JobCompType": "jobcomp/none",
    }


def _slurmdbd(root: Path, ports: Ports) -> str:
    settings = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={root}/munge/sock",
        "DbdHost": "localhost",
        "DbdPort": str(ports.accounting),
        "SlurmUser": "root",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "127.0.0.1",
        "StoragePort": str(ports.database),
        "StorageUser": "slurm",
        "StoragePass": "x",
        "StorageLoc": "slurm_acct",
        "LogFile": f"{root}/log/slurmdbd.log",
        "PidFile": f"{root}/pid/slurmdbd",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
