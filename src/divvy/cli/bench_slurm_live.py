"""A loop over a sandbox, in this process, with a journal that only counts."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from divvy.adapters.clock import SteadyClock, read_instant
from divvy.adapters.slurm.engine import Mode, SlurmEngine
from divvy.adapters.slurm.lua import job_submit_lua
from divvy.adapters.slurm.record import PastRun, View
from divvy.adapters.slurm.sandbox import Sandbox
from divvy.adapters.slurm.sandbox_files import Layout, NodeGroup
from divvy.adapters.slurm.settings import SlurmSettings
from divvy.adapters.slurm.shell import CommandLine
from divvy.control.loop import Loop
from divvy.control.state import FleetState
from divvy.fleet.budget import Budget
from divvy.fleet.decision import Plan
from divvy.fleet.event import Event, Placed, Started, Stopped
from divvy.fleet.snapshot import Snapshot
from divvy.planners.jobs import registry
from divvy.units import MINUTE

NODES: Final = 64
PER_NODE: Final = 8
GPUS: Final = NODES * PER_NODE


class Nobody:
    """An intake to which nobody comes."""

    def poll(self) -> Iterable[Event]:
        """Return nothing."""
        return ()


class Notes:
    """A journal that keeps what is measured."""

    def __init__(self) -> None:
        self.events = 0
        self.started: dict[str, int] = {}
        """First start of each job, ms."""
        self.ended: dict[str, int] = {}
        self.preemptions = 0

    def append(self, events: Sequence[Event], plan: Plan | None, snapshot: Snapshot) -> None:  # noqa: ARG002 - the port's
        """Note starts and ends."""
        self.events += len(events)
        for event in events:
            if isinstance(event, Started):
                self.started.setdefault(event.job, event.at)
            elif isinstance(event, Stopped):
                if event.requeue:
                    self.preemptions += 1
                else:
                    self.ended[event.job] = event.at
            elif isinstance(event, Placed):
                continue


class Watched:
    """A controller that remembers how long everything took.

    Args:
        settings: How Slurm is reached.
    """

    def __init__(self, settings: SlurmSettings) -> None:
        self._slurm = CommandLine(settings)
        self.looks: list[float] = []
        self.orders: list[float] = []

    def read(self, now: int, accounting: frozenset[str]) -> View:
        """Return what Slurm shows."""
        view = self._slurm.read(now, accounting)
        self.looks.append(view.took_ms)
        return view

    def carry_out(self, command: tuple[str, ...]) -> str:
        """Run a command."""
        began = time.perf_counter()
        trouble = self._slurm.carry_out(command)
        self.orders.append((time.perf_counter() - began) * 1000)
        return trouble

    def history(self, ago_seconds: int) -> Mapping[str, tuple[PastRun, ...]]:
        """Return what the accounting tells."""
        return self._slurm.history(ago_seconds)

    def close(self) -> None:
        """Do nothing more."""
        self._slurm.close()


class Live:
    """Divvy on a sandbox.

    Args:
        slurm: The sandbox.
        budget: Accounts and settings.
        settings: How Slurm is treated.
    """

    def __init__(self, slurm: Sandbox, budget: Budget, settings: SlurmSettings) -> None:
        here = read_instant()
        self.clock = SteadyClock(here.wall, here)
        self.state = FleetState(budget, None, self.clock.now())
        self.watched = Watched(settings)
        seen = self.state.snapshot.jobs.row
        self.engine = SlurmEngine(
            self.watched,
            self.state.snapshot,
            settings,
            Mode.ENFORCE,
            self.clock,
            lambda names: {name for name in names if name in seen},
        )
        self.notes = Notes()
        self.steps: list[float] = []
        planner = registry.create("budget")
        ports = (self.clock, self.engine, Nobody(), self.notes)
        self.loop = Loop(self.state, planner, *ports, may_act=self.engine.may_act)
        self.slurm = slurm

    def step(self, most_seconds: float = 0.25) -> None:
        """Wait for a view, at most so long, and run a pass; and the one that acts on the view."""
        pause = self.engine.pause_ms()
        wait = most_seconds if pause is None else min(pause / 1000, most_seconds)
        select.select([self.engine.fileno()], [], [], wait)
        began = time.perf_counter()
        self.loop.step()
        if self.engine.pause_ms() == 0:
            self.loop.step()
        self.steps.append((time.perf_counter() - began) * 1000)

    def close(self) -> None:
        """Let go."""
        self.engine.close()


def settings_for(
    slurm: Sandbox, heartbeat: Path, poll: int, warn: int = MINUTE, start_patience: int = 2 * MINUTE
) -> SlurmSettings:
    """Return the settings of a benchmark; times in ms."""
    return SlurmSettings(
        conf=str(slurm.root / "etc/slurm.conf"),
        heartbeat=str(heartbeat),
        fail_open_after=MINUTE,
        timeout=MINUTE,
        poll=poll,
        warn=warn,
        start_patience=start_patience,
    )


@contextlib.contextmanager
def started(
    accounts: Sequence[str], heartbeat: Path, settings: dict[str, str] | None = None, *, hold: bool = True
) -> Iterator[Sandbox]:
    """Start 64 nodes of 8 GPUs with some accounts; jobs are held at their submission where asked for."""
    lua = job_submit_lua(SlurmSettings(heartbeat=str(heartbeat), fail_open_after=MINUTE)) if hold else ""
    groups = (NodeGroup(NODES, {"h100": PER_NODE}, cpus=256),)
    layout = Layout(groups, cred_expire_seconds=5, settings=settings or {}, lua=lua)
    with Sandbox(layout) as slurm:
        names = ",".join(accounts)
        slurm.run("sacctmgr", "-i", "add", "account", names, "description=x", "organization=x", "fairshare=1")
        slurm.run("sacctmgr", "-i", "add", "user", "root", f"account={names}", "fairshare=1")
        yield slurm
