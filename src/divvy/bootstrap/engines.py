"""Engines: which one runs the jobs of a control plane, and what it offers."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import structlog

from divvy.adapters.local.devices import (
    SHAPE_HELP,
    LocalNode,
    offer_clusters,
    offer_gpus,
    offer_slots,
    parse_shape,
)
from divvy.adapters.local.engine import LocalEngine
from divvy.adapters.local.kernel_log import KernelLog
from divvy.adapters.local.nvml import take_census
from divvy.adapters.local.order import Treatment
from divvy.adapters.store.publisher import Devices
from divvy.adapters.store.reader import Reader
from divvy.bootstrap.settings import LiveSettings
from divvy.control.launch import LaunchSpec
from divvy.control.ports import Clock, Engine
from divvy.errors import InputError, NotFoundError
from divvy.fleet.decision import Plan
from divvy.fleet.event import Event
from divvy.fleet.snapshot import Snapshot

_log = structlog.get_logger("bootstrap")


class LiveEngine(Engine, Protocol):
    """An engine that a process can wait for."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` has something to report."""

    def pause_ms(self) -> int | None:
        """Return after how many ms to call `poll` in any case; None: no need."""

    def devices(self) -> Devices | None:
        """Return which device is whose, per node; None where that is not known."""

    def may_act(self) -> bool:
        """Return whether plans may be carried out now."""

    def heed(self, plan: Plan) -> None:
        """Learn of a plan, after it was carried out or not."""

    @property
    def problem(self) -> str:
        """Return why the engine cannot be seen; empty where it can."""

    def close(self) -> None:
        """Let go; what runs goes on."""


class World(NamedTuple):
    """What an engine finds around it.

    Attributes:
        details: Tells what a job runs.
        clock: Time.
        snapshot: The state, to read only.
        known: Says which of some job ids the store has seen before.
    """

    details: Callable[[str], LaunchSpec]
    clock: Clock
    snapshot: Snapshot
    known: Callable[[Iterable[str]], set[str]]


class EngineMaker(Protocol):
    """Makes the engine of a loop."""

    def __call__(self, settings: LiveSettings, world: World) -> LiveEngine:
        """Return the engine."""


def create_engine(settings: LiveSettings, world: World) -> LiveEngine:
    """Make the engine that the settings name.

    Raises:
        DivvyError: If there is no such engine, or it cannot start.
    """
    check_engine(settings)
    return ENGINES[settings.engine](settings, world)


def check_engine(settings: LiveSettings, *, sample: bool = False) -> None:
    """Refuse settings with which the engine could never start.

    Raises:
        InputError: With what is wrong.
    """
    if settings.engine == "slurm":
        from divvy.bootstrap.slurm import read_mode, slurm_settings  # noqa: PLC0415 - as in `slurm_engine`

        read_mode(settings.mode)
        slurm_settings(Path(settings.home), settings.engine_file)
        _refuse_shape(settings, "Slurm", sample=sample)
    elif settings.engine == "ray":
        from divvy.bootstrap.ray import check_address  # noqa: PLC0415 - as in `ray_engine`

        check_address(settings.engine_address)
        _refuse_shape(settings, "Ray", sample=sample)
    elif settings.engine in ENGINES:
        offered_nodes(settings.shape, slots=settings.slots)
    else:
        raise InputError.one(
            "engine-unknown", f"no engine {settings.engine!r}", path="--engine", allowed=", ".join(ENGINES)
        )


def _refuse_shape(settings: LiveSettings, name: str, *, sample: bool) -> None:
    if sample or settings.shape:
        raise InputError.one(
            "engine-options",
            "--sample, --nodes and --slots are for the local engine",
            path="--engine",
            fix=f"leave them away: {name}'s nodes are {name}'s",
        )


def launch_details(reader: Reader) -> Callable[[str], LaunchSpec]:
    """Return the look-up of what a job runs."""

    def details(job: str) -> LaunchSpec:
        document = reader.launch(job)
        if document is None:
            raise NotFoundError.one("launch-unknown", f"nothing is known of what job {job} runs", path="job")
        return LaunchSpec.from_document(document)

    return details


class AlwaysInSight:
    """What `LiveEngine` asks of an engine that orders tell everything and that always sees its jobs."""

    def may_act(self) -> bool:
        """Return True."""
        return True

    def heed(self, plan: Plan) -> None:
        """Do nothing."""

    @property
    def problem(self) -> str:
        """Return nothing."""
        return ""


class _LocalEngine(AlwaysInSight, LocalEngine):
    """The local engine, with the health of its GPUs, and its devices as the publisher shows them."""

    health: KernelLog | None = None

    def poll(self) -> list[Event]:
        """Return what happened since the last call, faults of GPUs included."""
        faults = self.health.poll() if self.health is not None else []
        return [*super().poll(), *faults]

    def close(self) -> None:
        """Let go; what runs goes on."""
        if self.health is not None:
            self.health.close()
        super().close()

    def devices(self) -> Devices:
        """Return which device is whose, and how busy it is, measured at most once a second."""
        found: dict[str, list[list[Any]]] = {}
        for held, (busy, reason) in self.measure():
            found.setdefault(held.node, []).append([held.place, held.job or None, busy, reason or None])
        return found


def local_engine(settings: LiveSettings, world: World) -> LiveEngine:
    """Make the engine that runs jobs on this machine, on its GPUs, or on CPU slots where it has none.

    Raises:
        DivvyError: If the shape is not one of this machine, or its directory cannot be used.
    """
    nodes = offered_nodes(settings.shape, slots=settings.slots)
    _log.info("offering", nodes={node.name: f"{len(node.devices)} {node.model}" for node in nodes})
    slots_only = all(device.minor < 0 for node in nodes for device in node.devices)
    treatment = Treatment(hide_gpus=slots_only and bool(take_census().gpus))
    known = tuple(world.snapshot.nodes.node)
    engine = _LocalEngine(
        Path(settings.home), world.details, nodes, world.clock, known=known, treatment=treatment
    )
    with_gpus = [node.name for node in nodes if any(device.minor >= 0 for device in node.devices)]
    engine.health = KernelLog(with_gpus, world.clock)
    return engine


def slurm_engine(settings: LiveSettings, world: World) -> LiveEngine:
    """Make the engine that leaves jobs to an existing Slurm.

    Raises:
        DivvyError: If its settings cannot be read.
    """
    from divvy.bootstrap.slurm import make  # noqa: PLC0415 - nobody else pays for it

    return make(settings, world)


def ray_engine(settings: LiveSettings, world: World) -> LiveEngine:
    """Make the engine that runs jobs on an existing Ray cluster.

    Raises:
        DivvyError: If its settings cannot be used.
    """
    from divvy.bootstrap.ray import make  # noqa: PLC0415 - nobody else pays for it

    return make(settings, world)


#: Engines by the name that ``divvy up --engine`` takes.
ENGINES: Final[dict[str, EngineMaker]] = {"local": local_engine, "slurm": slurm_engine, "ray": ray_engine}


def offered_nodes(shape: str, *, slots: bool) -> tuple[LocalNode, ...]:
    """Return the nodes that this machine is offered as.

    Args:
        shape: Such as ``8`` or ``2x4``; empty: all GPUs, or a slot per CPU where there is no GPU. CPU slots
            may be in several clusters: ``east:2x4,west:4``.
        slots: Offer CPU slots even where there are GPUs.

    Raises:
        InputError: If the shape cannot be read, or asks for more GPUs than there are.
    """
    host = socket.gethostname().partition(".")[0] or "localhost"
    census = take_census()
    try:
        if ":" in shape and (slots or not census.gpus):
            return offer_clusters(host, shape)
        wanted = parse_shape(shape) if shape else None
    except ValueError as error:
        raise InputError.one("node-shape", str(error), path="--nodes", allowed=SHAPE_HELP) from error
    if census.gpus and not slots:
        return offer_gpus(host, census.gpus, wanted)
    return offer_slots(host, *(wanted or (1, os.cpu_count() or 1)))
