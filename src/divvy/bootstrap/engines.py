"""Engines: which one runs the jobs of a control plane, and what it offers."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import structlog

from divvy.adapters.local.devices import SHAPE_HELP, LocalNode, offer_gpus, offer_slots, parse_shape
from divvy.adapters.local.engine import LocalEngine
from divvy.adapters.local.nvml import take_census
from divvy.adapters.local.order import Treatment
from divvy.adapters.store.publisher import Devices
from divvy.adapters.store.reader import Reader
from divvy.bootstrap.settings import LiveSettings
from divvy.control.launch import LaunchSpec
from divvy.control.ports import Clock, Engine
from divvy.errors import InputError, NotFoundError
from divvy.fleet.node import Node

_log = structlog.get_logger("bootstrap")


class LiveEngine(Engine, Protocol):
    """An engine that a process can wait for."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` has something to report."""

    def pause_ms(self) -> int | None:
        """Return after how many ms to call `poll` in any case; None: no need."""

    def devices(self) -> Devices:
        """Return which device is whose, per node."""

    def close(self) -> None:
        """Let go; what runs goes on."""


class EngineMaker(Protocol):
    """Makes the engine of a loop."""

    def __call__(
        self,
        settings: LiveSettings,
        details: Callable[[str], LaunchSpec],
        clock: Clock,
        known: Iterable[Node],
    ) -> LiveEngine:
        """Return the engine; ``known`` are the nodes that the state knows."""


def launch_details(reader: Reader) -> Callable[[str], LaunchSpec]:
    """Return the look-up of what a job runs."""

    def details(job: str) -> LaunchSpec:
        document = reader.launch(job)
        if document is None:
            raise NotFoundError.one("launch-unknown", f"nothing is known of what job {job} runs", path="job")
        return LaunchSpec.from_document(document)

    return details


class _LocalEngine(LocalEngine):
    """The local engine, with its devices as the publisher shows them."""

    def devices(self) -> Devices:
        """Return which device is whose, and how busy it is, measured at most once a second."""
        found: dict[str, list[list[Any]]] = {}
        for held, (busy, reason) in self.measure():
            found.setdefault(held.node, []).append([held.place, held.job or None, busy, reason or None])
        return found


def local_engine(
    settings: LiveSettings, details: Callable[[str], LaunchSpec], clock: Clock, known: Iterable[Node]
) -> LiveEngine:
    """Make the engine that runs jobs on this machine, on its GPUs, or on CPU slots where it has none.

    Raises:
        DivvyError: If the shape is not one of this machine, or its directory cannot be used.
    """
    nodes = offered_nodes(settings.shape, slots=settings.slots)
    _log.info("offering", nodes={node.name: f"{len(node.devices)} {node.model}" for node in nodes})
    slots_only = all(device.minor < 0 for node in nodes for device in node.devices)
    treatment = Treatment(hide_gpus=slots_only and bool(take_census().gpus))
    return _LocalEngine(Path(settings.home), details, nodes, clock, known=known, treatment=treatment)


def offered_nodes(shape: str, *, slots: bool) -> tuple[LocalNode, ...]:
    """Return the nodes that this machine is offered as.

    Args:
        shape: Such as ``8`` or ``2x4``; empty: all GPUs, or a slot per CPU where there is no GPU.
        slots: Offer CPU slots even where there are GPUs.

    Raises:
        InputError: If the shape cannot be read, or asks for more GPUs than there are.
    """
    try:
        wanted = parse_shape(shape) if shape else None
    except ValueError as error:
        raise InputError.one("node-shape", str(error), path="--nodes", allowed=SHAPE_HELP) from error
    host = socket.gethostname().partition(".")[0] or "localhost"
    census = take_census()
    if census.gpus and not slots:
        return offer_gpus(host, census.gpus, wanted)
    return offer_slots(host, *(wanted or (1, os.cpu_count() or 1)))
