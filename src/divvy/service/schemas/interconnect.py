"""What `divvy topo` and `divvy route` print with ``--json``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from divvy.service.schemas.shape import Shape


class TopoVertex(Shape):
    """A device, a junction or a memory; only what is known is there."""

    id: str = Field(description="For devices of a matrix the name of their column.")
    kind: str = Field(
        description="gpu, nic, pcie_switch, host_bridge, numa, memory, nvswitch, switch, fabric, ..."
    )
    name: str | None = Field(default=None, description="The system's own name, such as mlx5_0.")
    bus: str | None = Field(default=None, description="PCI address.")
    numa: int | None = None
    machine: str | None = None
    model: str | None = None
    peer: bool | None = Field(default=None, description="Whether it takes part in PCIe peer-to-peer.")
    domain: str | None = Field(default=None, description="NVLink domain of a cluster.")


class TopoLink(Shape):
    """A link; it carries its rate in each direction at once."""

    a: str
    b: str
    kind: str
    gb_per_s: float = Field(description="One way, 1e9 bytes per second.", gt=0)
    source: Literal["measured", "width", "label", "default"]
    source_text: str
    source_file: str
    latency_us: float
    both_ways_gb_per_s: float | None = Field(
        default=None, description="Both directions together, if less than twice."
    )


class TopoPair(Shape):
    """The label of two devices."""

    a: str
    b: str
    label: str


class TopoWarning(Shape):
    """What is wrong or unknown, and what to do."""

    code: str
    where: str
    text: str
    fix: str


class TopoPeering(Shape):
    """The processor as a PCIe switch."""

    allowed: bool
    socket_gb_per_s: float
    cross_gb_per_s: float


class Topo(Shape):
    """`divvy topo show`: the merged graph."""

    schema_: Literal["divvy.topo/1"] = Field(alias="schema")
    name: str
    sources: list[str]
    vertices: list[TopoVertex]
    links: list[TopoLink]
    pairs: list[TopoPair]
    peering: TopoPeering
    warnings: list[TopoWarning]


class TopoCheck(Shape):
    """`divvy topo check`."""

    schema_: Literal["divvy.topo.check/1"] = Field(alias="schema")
    name: str
    clean: bool
    warnings: list[TopoWarning]


class RouteEdge(Shape):
    """A link that a route crosses, from `a` to `b` the first time."""

    a: str
    b: str
    times: int = Field(description="Crossings in either direction.", ge=1)


class RouteView(Shape):
    """A route and its share of the bytes."""

    kind: str
    via: list[str]
    edges: list[RouteEdge]
    share: float
    coalesced: bool


class RouteRejected(Shape):
    """A kind of route that was not used."""

    kind: str
    predicted_s: float = Field(description="Time of the whole transfer by it alone.")
    via: list[str]
    why: str


class RouteTransfer(Shape):
    """One transfer of a plan."""

    id: str
    from_: str = Field(alias="from")
    to: str
    bytes: int
    release: float
    routes: list[RouteView]
    start: float
    finish: float
    deadline: float | None
    late_s: float
    bottleneck: str
    rejected: list[RouteRejected]


class RouteUnplanned(Shape):
    """A transfer without a route."""

    id: str
    code: str
    reason: str


class MeasuredCosts(Shape):
    """What `--costs` gave."""

    file: str
    kinds: dict[str, Any]
    transfers_without_route: int


class RoutePlanView(Shape):
    """`divvy route plan`."""

    schema_: Literal["divvy.route.plan/1"] = Field(alias="schema")
    topology: str
    planner: str
    transfers: list[RouteTransfer]
    makespan_s: float
    bound_s: float
    of_bound: float | None = Field(description="Makespan over bound; null where nothing is moved.")
    unplanned: list[RouteUnplanned]
    costs: MeasuredCosts | None = None


class RouteCandidate(Shape):
    """One possible route with its prediction."""

    kind: str
    via: list[str]
    edges: list[RouteEdge]
    gb_per_s: float
    predicted_s: float
    expected_s: list[float]
    overhead_s: float
    coalesce: bool
    cost: dict[str, Any] = Field(description="startup_s, descriptor_s, and their source.")
    bottleneck: str
    chosen: bool


class RouteExplain(Shape):
    """`divvy route explain`."""

    schema_: Literal["divvy.route.explain/1"] = Field(alias="schema")
    topology: str
    from_: str = Field(alias="from")
    to: str
    bytes: int
    descriptors: int
    label: str | None
    routes: list[RouteView]
    predicted_s: float
    both_ways_s: float = Field(description="The same while as many bytes go the other way, as a ring sends.")
    expected_s: list[float]
    gb_per_s: float
    bottleneck: str
    bound_s: float
    of_bound: float | None
    candidates: list[RouteCandidate]
    rejected: list[RouteRejected]
    costs: MeasuredCosts | None = None


class RouteResult(Shape):
    """One planner on one topology."""

    topology: str
    planner: str
    transfers: int
    makespan_s: float
    p99_s: float
    mean_s: float
    bound_s: float
    of_bound: float
    kinds: dict[str, int]


class RouteMissing(Shape):
    """What could not be planned, and why."""

    topology: str
    planner: str
    transfer: str
    code: str
    reason: str


class RouteCompare(Shape):
    """`divvy route compare`."""

    schema_: Literal["divvy.route.compare/1"] = Field(alias="schema")
    transfers: str
    results: list[RouteResult]
    geomean: dict[str, float]
    unplanned: list[RouteMissing]
    costs: dict[str, MeasuredCosts] | None = None


class RouteChange(Shape):
    """What a link carries now."""

    a: str
    b: str
    gb_per_s: float = Field(ge=0)


class RouteReplan(Shape):
    """`divvy route replan`."""

    schema_: Literal["divvy.route.replan/1"] = Field(alias="schema")
    at_s: float
    changes: list[RouteChange]
    moved: dict[str, int] = Field(description="Bytes that have arrived, by transfer.")
    done: list[str]
    before_s: float
    without_s: float | None = Field(description="End of the first plan if nobody plans again; null: never.")
    plan: RoutePlanView


class RouteConfig(Shape):
    """`divvy route config`."""

    schema_: Literal["divvy.route.config/1"] = Field(alias="schema")
    topology: str
    for_: str = Field(alias="for")
    settings: dict[str, Any]
    text: list[str]
    warnings: list[Any]


class _Beside(Shape):
    """A plan beside its bound, a baseline and TopKV's claim."""

    plan: dict[str, Any]
    figure: dict[str, float]
    bound: dict[str, float | str]
    baseline: dict[str, float | str]
    topkv_claim: dict[str, Any] | None


class _Serving(_Beside):
    """The same for one model."""

    model: str


class RouteExperts(_Serving):
    """`divvy route experts`."""

    schema_: Literal["divvy.route.experts/1"] = Field(alias="schema")
    experts: int
    gpus: int
    domains: list[str]
    traffic: str


class RouteTiers(_Beside):
    """`divvy route tiers`."""

    schema_: Literal["divvy.route.tiers/1"] = Field(alias="schema")
    working_set_bytes: float
    reads: float
    tiers: list[dict[str, float | str]]


class RouteOverlap(_Serving):
    """`divvy route overlap`."""

    schema_: Literal["divvy.route.overlap/1"] = Field(alias="schema")
    prompt_tokens: int
    kv_bytes: float
    prefill_s: float
    route: dict[str, float | str]
    streams: int


class RouteLayout(_Serving):
    """`divvy route layout`."""

    schema_: Literal["divvy.route.layout/1"] = Field(alias="schema")
    from_: dict[str, int] = Field(alias="from")
    to: dict[str, int]
    tokens: int
    replicated: bool


class RoutePairing(Shape):
    """One prefill and its decode place."""

    request: str
    target: str
    predicted_s: float
    sent_bytes: int
    cached_blocks: int
    others: dict[str, float]


class RoutePair(Shape):
    """`divvy route pair`."""

    schema_: Literal["divvy.route.pair/1"] = Field(alias="schema")
    pairs: list[RoutePairing]
    unpaired: list[Any]
    figure: dict[str, float]
    baseline: dict[str, float | str]


INTERCONNECT: tuple[type[Shape], ...] = (
    Topo,
    TopoCheck,
    RoutePlanView,
    RouteExplain,
    RouteCompare,
    RouteReplan,
    RouteConfig,
    RouteExperts,
    RouteTiers,
    RouteOverlap,
    RouteLayout,
    RoutePair,
)
