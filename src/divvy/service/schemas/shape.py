"""What all answers share: the base shape, ages, problems, reasons, accounts."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """A documented shape; unknown members are a fault, so that tests notice undocumented ones."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, protected_namespaces=())


class Aged(Shape):
    """An answer that says how old its data is."""

    as_of: float = Field(description="Time of the state that this answer shows; Unix seconds.")
    age_seconds: float = Field(
        description="Seconds between that state and this answer. It grows while the scheduler does not run."
    )


class FaultView(Shape):
    """One thing that is wrong, and where."""

    code: str
    path: str
    message: str
    allowed: str
    fix: str


class Problem(Shape):
    """RFC 9457 problem document; ``faults`` lists everything that is wrong at once."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    faults: list[FaultView]


class ReasonView(Shape):
    """Why, as a stable code and as text."""

    code: str
    text: str


class PlaceView(Shape):
    """Devices on one node."""

    node: str
    gpus: int


class AccountView(Shape):
    """An account: its shares and what the last pass saw, the very numbers that the queue is sorted by.

    GPU-hours are those of an average device of the fleet (charge divided by the mean device weight).
    """

    path: str
    parent: str
    leaf: bool
    share: float = Field(description="Percent of the parent.")
    effective_share: float = Field(description="Part of the whole fleet, 0 to 1.")
    owners: list[str]
    rank: int | None = Field(description="Place in the order of service, 0 first; null without demand.")
    balance: float | None = Field(description="Usage over entitlement in the window; 1 is exactly served.")
    floor: float | None = Field(description="Devices below which nobody pushes it while it has demand.")
    held: int = Field(description="Devices held by allocated jobs.")
    unallocated: int = Field(description="Devices held by unallocated jobs.")
    waiting: int = Field(description="Queued allocated jobs.")
    waiting_gpus: int
    entitlement_gpu_hours: float | None
    usage_gpu_hours: float | None
