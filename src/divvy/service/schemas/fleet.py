"""Answers about the fleet: health, status."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from divvy.service.schemas.shape import AccountView, Aged, Shape


class Health(Shape):
    """Whether the API answers, the scheduler runs and the store can be read."""

    schema_: Literal["divvy.health/1"] = Field("divvy.health/1", alias="schema")
    status: Literal["ok", "stale", "starting"]
    version: str
    as_of: float | None
    age_seconds: float | None
    scheduler: Literal["starting", "running", "stalled", "silent", "stopped"]
    problem: str = Field(description="What keeps the scheduler from deciding; empty when nothing does.")
    home: str | None = Field(default=None, description="State directory; shown to administrators only.")


class DeviceView(Shape):
    """One device: who has it, and how busy it is if that is known."""

    index: int
    job: str | None
    account: str | None
    state: str = Field(description="free, protected, interruptible, unallocated, stopping, draining or down.")
    utilisation: float | None = Field(description="0 to 1, or null with the reason beside it; never a guess.")
    utilisation_reason: str | None


class MaintenanceView(Shape):
    """Maintenance that is announced or under way; null as its end: until somebody says so."""

    from_at: float
    until_at: float | None
    cause: str


class NodeView(Shape):
    """One node and its devices."""

    name: str
    model: str
    gpus: int
    free: int
    state: Literal["up", "draining", "down"]
    cause: str
    maintenance: MaintenanceView | None
    domain: str
    cluster: str
    devices: list[DeviceView]


class Totals(Shape):
    """Sums over the fleet."""

    gpus: int = Field(description="Devices on nodes that are up or draining.")
    used: int
    allocated: int
    unallocated: int
    free: int
    queued: int
    running: int


class Status(Aged):
    """The fleet at a glance."""

    schema_: Literal["divvy.status/1"] = Field("divvy.status/1", alias="schema")
    version: int
    policy: str = Field(description="Name of the planner.")
    totals: Totals
    nodes: list[NodeView]
    accounts: list[AccountView]
