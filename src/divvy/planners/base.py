"""The contract of every planner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from divvy.fleet.decision import Plan
from divvy.fleet.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Context:
    """What a pass may know besides the snapshot.

    Attributes:
        now: Time of the pass, ms since the state's epoch.
        seed: Seeds the planner's generator, where it uses one; the same seed gives the same plan.
        explain: Whether the plan carries standings and waits. Decisions never depend on it.
    """

    now: int
    seed: int = 0
    explain: bool = True


class JobPlanner(Protocol):
    """Decides which jobs start, where, and which give way.

    `plan` is a pure function of its arguments. A planner object may keep indices that it updates from
    the snapshot's change log; one made anew gives the byte-equal plan (a property test).
    """

    @property
    def name(self) -> str:
        """Return the name in the registry."""

    def plan(self, snapshot: Snapshot, context: Context) -> Plan:
        """Return what to do now, and why."""
