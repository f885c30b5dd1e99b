"""What the loop needs of the world. Live, shadow and simulated runs are sets of these, nothing more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from divvy.fleet.decision import Plan
from divvy.fleet.event import Event
from divvy.fleet.job import JobSpec, StopCause
from divvy.fleet.snapshot import Snapshot


class Clock(Protocol):
    """Time, never going backwards."""

    def now(self) -> int:
        """Return ms since the state's epoch."""


class Launch(NamedTuple):
    """Begin one run of a job.

    Attributes:
        job: Id.
        attempt: Number of the run, from 1; (job, attempt) is begun at most once, ever.
        spec: The job.
        placement: (node name, devices) pairs.
    """

    job: str
    attempt: int
    spec: JobSpec
    placement: tuple[tuple[str, int], ...]


class Halt(NamedTuple):
    """End one run of a job: warn, grace, TERM, KILL."""

    job: str
    attempt: int
    cause: StopCause


Order = Launch | Halt


class Engine(Protocol):
    """Runs jobs. Orders are idempotent per (job, attempt): repeating one changes nothing."""

    def submit(self, orders: Sequence[Order]) -> Iterable[Event]:
        """Pass orders on; return what is known at once (a simulated engine knows all of it)."""

    def poll(self) -> Iterable[Event]:
        """Return what happened since the last call: starts, ends, nodes that came, went or changed."""


class Intake(Protocol):
    """What people asked for since the last step, already authorised."""

    def poll(self) -> Iterable[Event]:
        """Return submissions, withdrawals, budget changes, drains."""


class Journal(Protocol):
    """The append-only record. What is appended is durable before `append` returns."""

    def append(self, events: Sequence[Event], plan: Plan | None, snapshot: Snapshot) -> None:
        """Record events in the order they were applied, and the plan that was made after them."""


class Publisher(Protocol):
    """Where readers (API, dashboard) find the state; never blocks the loop."""

    def publish(self, snapshot: Snapshot, plan: Plan, now: int) -> None:
        """Offer the newest state."""
