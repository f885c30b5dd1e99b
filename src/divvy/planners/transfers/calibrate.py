"""Costs that were measured in the place of assumed ones: start-up, descriptors, and the rates of links.

A file of costs holds transfers that were timed, or numbers that were fitted elsewhere. Timed transfers of a
route are learned by `divvy.perf.transfer.Learned`, whose prior are the defaults; a link takes the best rate
that a route reached which it limits. What is not in the file keeps its default. Every number says where it is
from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from divvy.errors import Fault, InputError
from divvy.fleet.topology.graph import Link, Origin, Source, Topology
from divvy.perf.transfer import KINDS, KindCost, Learned
from divvy.planners.transfers.candidates import Candidate, Finder
from divvy.planners.transfers.roads import Roads, roads

_FORM: Final = (
    '{"transfers": [{"from", "to", "bytes", "seconds", "kind"?, "descriptors"?}], '
    '"kinds": {kind: {"startup_s"?, "descriptor_s"?, "efficiency"?: [least, most]}}}; one of them is enough'
)
_ENOUGH: Final = 3
_LIMITS: Final = 1.02


@dataclass(frozen=True, slots=True)
class Timed:
    """A transfer that was timed.

    Attributes:
        source: Where the bytes were.
        target: Where they went.
        size_bytes: How many.
        seconds: How long it took.
        kind: Kind of route; empty for the fastest between the ends.
        descriptors: Pieces that the bytes lay in.
    """

    source: str
    target: str
    size_bytes: float
    seconds: float
    kind: str = ""
    descriptors: int = 1


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a file of costs says.

    Attributes:
        name: The file, for provenance.
        timed: Transfers that were timed.
        kinds: Numbers by kind of route: ``startup_s``, ``descriptor_s``, ``efficiency``.
    """

    name: str
    timed: tuple[Timed, ...] = ()
    kinds: tuple[tuple[str, dict[str, Any]], ...] = ()


def read_calibration(name: str, document: Any) -> Calibration:
    """Return the content of a file of costs (``divvy.route.costs/1``).

    Raises:
        InputError: With every fault of the document.
    """
    faults: list[Fault] = []
    body = {"transfers": document} if isinstance(document, list) else document
    if not isinstance(body, dict) or not (body.get("transfers") or body.get("kinds")):
        raise InputError.one("costs-empty", f"{name} holds no costs", path="--costs", allowed=_FORM)
    rows = body.get("transfers") or []
    timed = [
        _timed(row, f"{name}:transfers[{i}]", faults)
        for i, row in enumerate(rows if isinstance(rows, list) else [rows])
    ]
    kinds = body.get("kinds") or {}
    if not isinstance(kinds, dict):
        faults.append(Fault("costs", f"{name}:kinds", "it is not an object", _FORM))
        kinds = {}
    given = [(kind, _numbers(kind, row, f"{name}:kinds.{kind}", faults)) for kind, row in kinds.items()]
    if faults:
        raise InputError(f"{name} has {len(faults)} fault{'s' if len(faults) > 1 else ''}", faults)
    return Calibration(name, tuple(t for t in timed if t is not None), tuple(given))


def _timed(row: Any, where: str, faults: list[Fault]) -> Timed | None:
    """Return one timed transfer, or None after adding its faults."""
    if not isinstance(row, dict):
        faults.append(Fault("costs", where, f"{row!r} is not an object", _FORM))
        return None
    before = len(faults)
    ends = [str(row.get(key) or "") for key in ("from", "to")]
    faults += [
        Fault("costs", f"{where}.{k}", "it is missing", _FORM)
        for k, v in zip(("from", "to"), ends, strict=True)
        if not v
    ]
    size, seconds = (_positive(row.get(key), f"{where}.{key}", faults) for key in ("bytes", "seconds"))
    pieces = _positive(row.get("descriptors", 1), f"{where}.descriptors", faults)
    kind = str(row.get("kind") or "")
    _known(kind or "nvlink", f"{where}.kind", faults)
    return Timed(ends[0], ends[1], size, seconds, kind, int(pieces)) if len(faults) == before else None


def _numbers(kind: str, row: Any, where: str, faults: list[Fault]) -> dict[str, Any]:
    """Return the numbers of one kind of route."""
    _known(kind, where, faults)
    if not isinstance(row, dict) or not row.keys() & {"startup_s", "descriptor_s", "efficiency"}:
        faults.append(Fault("costs", where, f"{row!r} has none of the numbers", _FORM))
        return {}
    out: dict[str, Any] = {
        key: _positive(row[key], f"{where}.{key}", faults)
        for key in ("startup_s", "descriptor_s")
        if key in row
    }
    if "efficiency" in row:
        pair = row["efficiency"] if isinstance(row["efficiency"], list) else [row["efficiency"]] * 2
        values = [_positive(v, f"{where}.efficiency", faults) for v in pair]
        if len(values) != 2 or values[0] > values[1]:
            faults.append(Fault("costs", f"{where}.efficiency", f"{pair!r} is not [least, most]", _FORM))
        out["efficiency"] = tuple(values)
    return out


def _known(kind: str, where: str, faults: list[Fault]) -> None:
    """Add a fault for a kind that there is not."""
    if kind not in KINDS:
        faults.append(Fault("kind-unknown", where, f"no kind of route {kind!r}", ", ".join(KINDS)))


def _positive(value: Any, where: str, faults: list[Fault]) -> float:
    """Return a positive number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value < math.inf:
        faults.append(Fault("costs", where, f"{value!r} is not a positive number"))
        return 1.0
    return float(value)


def calibrated(topo: Topology, calibration: Calibration) -> tuple[Roads, int]:
    """Return roads with the measured costs, and how many timed transfers have no route of their kind here."""
    finder = Finder(roads(topo))
    learned: dict[tuple[str, str, str], tuple[Candidate, Learned]] = {}
    unused = 0
    for timed in calibration.timed:
        route = _route(topo, finder, timed)
        if route is None:
            unused += 1
            continue
        key = (timed.source, timed.target, route.kind)
        _, model = learned.setdefault(key, (route, Learned(route.kind, float(route.gb_per_s))))
        model.observe(timed.size_bytes, timed.descriptors, timed.seconds)
    links = _links(finder.ways, list(learned.values()), calibration.name)
    costs = _costs(list(learned.values()), calibration)
    return roads(topo.with_links(links), costs), unused


def _route(topo: Topology, finder: Finder, timed: Timed) -> Candidate | None:
    """Return the route that a timed transfer took: the fastest of its kind."""
    source, target = topo.resolve(timed.source), topo.resolve(timed.target)
    ways = finder.ways
    if source not in ways.sources or target not in ways.sinks or source == target:
        return None
    found = [c for c in finder.between(source, target) if timed.kind in ("", c.kind)]
    return max(found, key=lambda c: c.gb_per_s, default=None)


def _links(ways: Roads, learned: Sequence[tuple[Candidate, Learned]], name: str) -> list[Link]:
    """Return the links, those that limit a learned route with the best rate that was reached over them."""
    best: dict[int, tuple[float, int]] = {}
    for route, model in learned:
        if model.count < _ENOUGH:
            continue
        rate = 1e-9 / float(model.coefficients()[2])
        crossed: dict[int, int] = {}
        for index in route.path.arcs:
            arc = ways.arcs[index]
            if arc.link >= 0:
                crossed[arc.link] = crossed.get(arc.link, 0) + 1
        for link, times in crossed.items():
            if ways.topo.links[link].gb_per_s <= _LIMITS * float(route.gb_per_s) * times:
                best[link] = max(best.get(link, (0.0, 0)), (rate, model.count))
    return [
        replace(link, gb_per_s=best[i][0], source=Source(Origin.MEASURED, _says(*best[i]), name))
        if i in best
        else link
        for i, link in enumerate(ways.topo.links)
    ]


def _says(rate: float, count: int) -> str:
    """Return the provenance of a measured link."""
    return f"{rate:.4g} GB/s over {count} timed transfers"


def _costs(learned: Sequence[tuple[Candidate, Learned]], calibration: Calibration) -> Mapping[str, KindCost]:
    """Return the costs of all kinds: fitted where transfers were timed, as given where they are given."""
    costs = dict(KINDS)
    for kind in KINDS:
        mine = [model for route, model in learned if route.kind == kind]
        if not mine:
            continue
        weights = [model.count for model in mine]
        startup, each = (
            math.exp(
                sum(w * math.log(float(m.coefficients()[i])) for w, m in zip(weights, mine, strict=True))
                / sum(weights)
            )
            for i in (0, 1)
        )
        span = max(model.span for model in mine)
        text = f"measured: {sum(weights)} timed transfers ({calibration.name})"
        costs[kind] = KindCost(startup, each, (1 / span, span), text)
    for kind, numbers in calibration.kinds:
        costs[kind] = replace(costs[kind], **numbers, source=f"measured: given by {calibration.name}")
    return costs


def costs_document(costs: Mapping[str, KindCost]) -> dict[str, dict[str, Any]]:
    """Return the measured costs for a document, by kind of route; nothing where all are defaults."""
    return {
        kind: {
            "startup_s": cost.startup_s,
            "descriptor_s": cost.descriptor_s,
            "efficiency": list(cost.efficiency),
            "source": cost.source,
        }
        for kind, cost in costs.items()
        if cost.source != KINDS[kind].source
    }
