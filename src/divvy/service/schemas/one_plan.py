"""What `divvy plan`, `divvy apply` and `divvy scenario` print with ``--json``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from divvy.service.schemas.shape import Shape
from divvy.service.schemas.slices import SizedSlice

#: (node, devices) pairs.
_Placement = list[list[Any]]


class PlannedStart(Shape):
    """A job that would start."""

    job: str
    account: str
    gpus: int
    placement: _Placement
    protected: bool
    reason: str = Field(description="Code.")
    text: str


class PlannedPreempt(Shape):
    """A job that would give way."""

    job: str
    account: str
    gpus: int
    by: str | None = Field(description="The job that takes the devices; null for a drain.")
    victim_balance: float | str
    balance: float | str
    reason: str
    text: str


class PlannedHold(Shape):
    """A dated slot that a gang would be given."""

    job: str
    nodes: _Placement
    due: float = Field(description="Unix seconds.")


class PlannedLapse(Shape):
    """A dated slot that would be given up."""

    job: str


class PlannedWait(Shape):
    """A job that was tried and waits; not a change."""

    job: str
    needed: int
    free: int
    reclaimable: int
    protected: int
    owed_by: str | None
    reason: str
    text: str


class PlannedJobs(Shape):
    """What would become of jobs."""

    start: list[PlannedStart]
    preempt: list[PlannedPreempt]
    hold: list[PlannedHold]
    lapse: list[PlannedLapse]
    wait: list[PlannedWait]


class HeldGpu(Shape):
    """A GPU that a service holds."""

    lease: str
    node: str
    device: int
    allocated: bool = Field(description="Whether it is charged; else it is lent.")
    layout: list[SizedSlice]


class PlannedService(Shape):
    """A service as the plan leaves it."""

    service: str
    account: str
    rate_qps: float
    wanted_gpus: int
    allocated_gpus: int
    lent_gpus: int
    serves_qps: float = Field(description="Within its objective, by the curve of its model.")
    gpus: list[HeldGpu]


class CutPrice(Shape):
    """What a change of slices costs."""

    seconds: list[float] = Field(min_length=2, max_length=2)
    lost_gpc_seconds: float = Field(description="Compute-slice seconds out of service.")


class CutGpu(Shape):
    """A GPU that would be cut."""

    gpu: int = Field(description="Index that the steps speak of.")
    lease: str
    node: str
    device: int
    from_: list[SizedSlice] = Field(alias="from")
    to: list[SizedSlice]


class PlannedCut(Shape):
    """How the GPUs of a service would be cut; no steps: they stay."""

    service: str
    reason: str
    serves_qps: float
    dispatcher: str
    price: CutPrice
    steps: list[str]
    gpus: list[CutGpu]


class RoutePart(Shape):
    """A kind of route and its part of the bytes."""

    kind: str
    share: float


class PlannedRoute(Shape):
    """Where the caches of a GPU would go."""

    prefill: str
    decode: str
    from_: str = Field(alias="from")
    to: str | None
    routes: list[RoutePart]
    predicted_ms: float | str
    change: Literal["new", "move", "same", "end"]
    reason: str


class OnePlanView(Shape):
    """The plan of the whole fleet."""

    schema_: Literal["divvy.plan/1"] = Field(alias="schema")
    version: int = Field(description="What `divvy apply --version` asks for.")
    at: float = Field(description="Time of the plan, Unix seconds.")
    source: str
    changes: int
    jobs: PlannedJobs
    services: list[PlannedService]
    slices: list[PlannedCut]
    routes: list[PlannedRoute]


class ApplyView(Shape):
    """A plan that was carried out."""

    schema_: Literal["divvy.apply/1"] = Field(alias="schema")
    version: int
    now: int = Field(description="Version after it.")
    left: list[str] = Field(description="What is to be done by hand.")
    plan: OnePlanView


class ShadowJob(Shape):
    """A job that Divvy would have started; times are Unix seconds."""

    job: str
    account: str
    gpus: int
    submitted: float | None
    here: float | None = Field(description="When Divvy would have started it first.")
    there: float | None = Field(description="When the engine started it.")
    withdrawn: bool
    sooner_seconds: float | None
    reason: str


class ShadowView(Shape):
    """What plans that nobody carried out would have done."""

    schema_: Literal["divvy.plan.shadow/1"] = Field(alias="schema")
    since: float
    passes: int
    starts: int
    preemptions: int
    holds: int
    both: int = Field(description="Jobs that both would have started and did start.")
    sooner_seconds: dict[str, float] | None
    jobs: list[ShadowJob]
    note: str


class ScenarioFigure(Shape):
    """A mean over seeds, with its 95% interval."""

    value: float | None
    interval: list[float | None] = Field(min_length=2, max_length=2)


class Arrangement(Shape):
    """One way to run the work."""

    name: str
    fixed_gpus: dict[str, int] | None = Field(description="Of the last seed; null where nothing is fixed.")
    figures: dict[str, ScenarioFigure]
    runs: list[dict[str, float | None]]


class PairedDifference(Shape):
    """One plan less another arrangement, seed by seed."""

    against: str
    measure: str
    difference: float | None
    interval: list[float | None] = Field(min_length=2, max_length=2)
    n: int


class ScenarioView(Shape):
    """One fleet under one plan and under tools apart."""

    schema_: Literal["divvy.scenario/1"] = Field(alias="schema")
    fleet: dict[str, int]
    training_jobs: int
    services: list[dict[str, Any]]
    pairings: list[dict[str, Any]]
    shares: dict[str, float]
    window_hours: list[float]
    epoch_seconds: float
    seeds: list[int]
    arrangements: list[Arrangement]
    paired: list[PairedDifference]


ONE_PLAN: tuple[type[Shape], ...] = (OnePlanView, ApplyView, ShadowView, ScenarioView)
