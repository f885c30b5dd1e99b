"""What `divvy slices` prints with ``--json``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from divvy.service.schemas.shape import Shape


class SliceAt(Shape):
    """A slice: a profile at a start."""

    profile: str = Field(description="As drivers print it, such as 3g.40gb.")
    start: int = Field(ge=0, description="First memory slice.")


class SizedSlice(SliceAt):
    """A slice with the memory slices that it takes."""

    size: int = Field(ge=1)


class GpuLayout(Shape):
    """One GPU's slices, by start."""

    gpu: int = Field(ge=0)
    slices: list[SliceAt]


class BucketView(Shape):
    """Latencies of the queries of some batch sizes at `rate_qps`."""

    batches: list[int] = Field(min_length=2, max_length=2, description="Smallest and largest.")
    p95_ms: float
    p99_ms: float
    met: bool = Field(description="Whether the percentile asked for meets the objective in this bucket.")
    queries: int


class OddityView(Shape):
    """What is odd about a profile; batch 0 means a whole slice size."""

    code: str = Field(
        description="out-of-memory, hole, non-monotone-batch, non-monotone-slice, repeated, mismatch, "
        "outlier, not-measured or no-such-slice"
    )
    slice: int = Field(description="Compute slices.")
    batch: int
    processes: int
    text: str


class SlicesBaseline(Shape):
    """The best equal slices under the better of fifs and jsq."""

    best_homogeneous: str
    qps: float


class SlicesSeeds(Shape):
    """The seeds that chose the plan, and the fresh ones that confirm it."""

    search: list[int]
    confirm: list[int]


class SlicesEmitted(Shape):
    """The layout in another tool's words."""

    form: Literal["mig-parted", "nvidia-smi", "k8s"]
    text: str


class SlicesEvents(Shape):
    """Where every query was written."""

    path: str
    lines: int
    unit: Literal["seconds"]


class SlicesLayouts(Shape):
    """Every maximal legal layout of a GPU."""

    schema_: Literal["divvy.slices.layouts/1"] = Field(alias="schema")
    sku: str
    maximal: int
    multisets: int
    layouts: list[list[SizedSlice]]
    source: str


class SlicesRead(Shape):
    """What a text of the MIG tools says."""

    schema_: Literal["divvy.slices.read/1"] = Field(alias="schema")
    kind: str
    content: Any


class SlicesPlan(Shape):
    """A layout for one model, with its proof."""

    schema_: Literal["divvy.slices.plan/1"] = Field(alias="schema")
    sku: str
    gpus: int
    model: str
    planner: str
    dispatcher: str = Field(description="The rule that was taken, with its parameters.")
    prices: dict[str, float] = Field(description="By slice size, for the rule divvy; empty: compute slices.")
    slo_ms: float
    percentile: float
    per_bucket: bool
    batches: dict[str, float] = Field(description="Batch size to share.")
    layout: list[GpuLayout]
    rate_qps: float = Field(description="Found on the search seeds, holds on every confirming one; 0: none.")
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    buckets: list[BucketView]
    bound_qps: float = Field(description="No schedule on any legal layout serves more.")
    of_bound: float
    baseline: SlicesBaseline
    paris_qps: float = Field(description="The best PARIS + ELSA of every reading.")
    paris: str
    seeds: SlicesSeeds
    intervals: dict[str, list[float]] = Field(description="95% (Student) of the mean over the fresh seeds.")
    per_seed_qps: list[float]
    queries_per_seed: int
    explanation: list[str]
    oddities: list[OddityView]
    emit: SlicesEmitted | None = None
    events: SlicesEvents | None = None


class CompareRow(Shape):
    """One planner with one dispatcher on one model and number of GPUs."""

    model: str
    gpus: int
    planner: str
    dispatcher: str
    used_dispatcher: str
    slo_ms: float
    rate_qps: float
    interval: list[float]
    bound_qps: float
    of_bound: float
    baseline_qps: float
    against_baseline: float | None
    against_baseline_interval: list[float] | None
    outcome: Literal["win", "loss", "draw", "nothing"]
    layout: list[GpuLayout]
    slices: dict[str, int] = Field(description="Compute slices to number of slices.")
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    buckets: list[BucketView]


class CompareBaseline(Shape):
    """The best equal slices of a case."""

    model: str
    gpus: int
    name: str
    qps: float


class CompareSummary(Shape):
    """Wins and losses of one planner with one dispatcher; means leave out the cases that serve nothing."""

    planner: str
    dispatcher: str
    cases: int
    wins: int
    losses: int
    draws: int
    zero: int
    mean_against_baseline: float | None
    geometric_mean_against_baseline: float | None
    geometric_mean_of_bound: float | None


class SlicesCompare(Shape):
    """Every planner with every dispatcher on the same streams."""

    schema_: Literal["divvy.slices.compare/1"] = Field(alias="schema")
    rows: list[CompareRow]
    baselines: list[CompareBaseline]
    summary: list[CompareSummary]
    plots: list[str] | None = None
    events: SlicesEvents | None = None


class PackedSlice(SliceAt):
    """A slice with what runs on it; null where it is spare."""

    model: str | None
    batch: int | None
    processes: int | None


class PackedGpu(Shape):
    """One GPU of a packing; no slices where it is not needed."""

    gpu: int
    slices: list[PackedSlice]


class PackedModel(Shape):
    """One model of a scenario under the replay."""

    model: str
    rate_qps: float
    slo_ms: float
    percentile: float
    achieved_ms: float = Field(description="The percentile of the worst fresh seed.")
    met: bool


class SlicesPack(Shape):
    """Several models on one fleet."""

    schema_: Literal["divvy.slices.pack/1"] = Field(alias="schema")
    sku: str
    gpus: int
    lower_bound_gpus: int
    headroom: float = Field(description="Factor on all rates at which every objective still holds.")
    layout: list[PackedGpu]
    models: list[PackedModel]
    explanation: list[str]


class MeasuredBatch(Shape):
    """One batch size on a server; null where it was refused."""

    batch: int
    latency_ms: float | None
    p95_ms: float | None
    repeats: int
    refusal: str | None


class ProfileOddity(Shape):
    """What is odd about a measurement."""

    code: str
    batch: int
    text: str


class SlicesProfile(Shape):
    """A measurement of a server."""

    schema_: Literal["divvy.slices.profile/1"] = Field(alias="schema")
    server: str
    model: str
    slice: str
    processes: int
    rows: list[MeasuredBatch]
    oddities: list[ProfileOddity]
    csv: str | None = Field(description="Where the profile was written.")


class FitView(Shape):
    """latency = max(floor, base + per_item x batch), up to the largest batch."""

    slice: int
    floor_ms: float
    base_ms: float
    per_item_ms: float
    largest_batch: int
    mean_relative_error: float


class SlicesCheck(Shape):
    """What is odd about a profile, and a small model of it."""

    schema_: Literal["divvy.slices.check/1"] = Field(alias="schema")
    model: str
    sizes: list[int]
    oddities: list[OddityView]
    fit: list[FitView]


class ChangeStep(Shape):
    """One act on one slice."""

    act: Literal["drain", "destroy", "create", "serve"]
    gpu: int
    profile: str
    start: int
    state: Literal["pending", "done"]


class SlicesApply(Shape):
    """A change of slices: its price, its steps, and whether they were carried out."""

    schema_: Literal["divvy.slices.apply/1"] = Field(alias="schema")
    sku: str
    emulator: bool = Field(description="Whether no GPU was touched.")
    resumed: bool
    applied: bool
    seconds: list[float] = Field(min_length=2, max_length=2)
    lost_gpc_seconds: float
    gpcs_idle: list[int] = Field(description="Compute slices out of service, by GPU.")
    kept: list[list[SliceAt]] = Field(description="Slices that keep serving, by GPU.")
    steps: list[ChangeStep]


class SlicesDecision(Shape):
    """Whether a new plan pays for its change."""

    change: bool
    text: str


class SlicesDrift(Shape):
    """How far the traffic is from a plan."""

    schema_: Literal["divvy.slices.drift/1"] = Field(alias="schema")
    batches: float = Field(description="Largest gap of the cumulated batch shares, 0 to 1.")
    rate: float = Field(description="Relative change of the rate.")
    significant: bool
    text: str
    decision: SlicesDecision | None = None
    seconds: list[float] | None = None
    lost_gpc_seconds: float | None = None
    steps: list[str] | None = None


SLICES: tuple[type[Shape], ...] = (
    SlicesLayouts,
    SlicesRead,
    SlicesPlan,
    SlicesCompare,
    SlicesPack,
    SlicesProfile,
    SlicesCheck,
    SlicesApply,
    SlicesDrift,
)
