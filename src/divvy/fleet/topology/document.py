"""The merged graph read back from its own document (``divvy.topo/1``), with every number's provenance."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

from divvy.errors import Fault, InputError
from divvy.fleet.topology.graph import (
    Finding,
    Kind,
    Link,
    LinkKind,
    Origin,
    Peering,
    Source,
    Topology,
    Vertex,
    topology,
)

_Row = TypeVar("_Row")

_KNOWN: Final = frozenset({"id", "kind", "name", "bus", "numa", "machine", "model", "peer", "domain"})
_ORIGINS: Final = {origin.name.lower(): origin for origin in Origin}


def read_topology(name: str, text: str) -> Topology:
    """Return the graph of a document that ``divvy topo show --json`` or a lab wrote.

    Raises:
        InputError: With every fault of the document.
    """
    try:
        body = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InputError.one("unreadable", f"{name} is not whole JSON", path=f"{name}:{line}") from error
    faults: list[Fault] = []
    vertices = _each(name, body, "vertices", _vertex, faults)
    known = {vertex.id for vertex in vertices}
    if len(known) != len(vertices):
        faults.append(Fault("topo-document", f"{name}:vertices", "an id is there twice"))
    links = _each(name, body, "links", _link, faults)
    for i, link in enumerate(links):
        lost = [end for end in (link.a, link.b) if end not in known]
        if lost and not faults:
            faults.append(
                Fault("topo-document", f"{name}:links[{i}]", f"{', '.join(lost)} is no vertex of it")
            )
    pairs = _each(
        name, body, "pairs", lambda row: ((str(row["a"]), str(row["b"])), str(row["label"])), faults
    )
    findings = _each(name, body, "warnings", lambda row: Finding(**row), faults)
    peering = body.get("peering") or {}
    socket, cross = peering.get("socket_gb_per_s", 16.0), peering.get("cross_gb_per_s", 8.0)
    if not vertices and not faults:
        faults.append(Fault("topo-document", f"{name}:vertices", "there is none"))
    if faults:
        raise InputError(f"{name} is no merged graph", faults)
    return topology(
        str(body.get("name") or name),
        vertices,
        links,
        Peering(float(socket), float(cross), bool(peering.get("allowed", True))),
        pairs=dict(pairs),
        findings=findings,
        sources=[str(source) for source in body.get("sources") or []],
    )


def _each(
    name: str, body: Any, key: str, make: Callable[[dict[str, Any]], _Row], faults: list[Fault]
) -> list[_Row]:
    """Return the rows of a member, each made by `make`; what cannot be made is a fault."""
    rows = body.get(key) if isinstance(body, dict) else None
    out: list[_Row] = []
    for i, row in enumerate(rows if isinstance(rows, list) else []):
        try:
            out.append(make(row))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            faults.append(Fault("topo-document", f"{name}:{key}[{i}]", f"it cannot be read: {error!r}"))
    return out


def _vertex(row: dict[str, Any]) -> Vertex:
    numa = row.get("numa")
    if numa is not None and not isinstance(numa, int):
        raise ValueError(f"numa {numa!r} is no number")
    return Vertex(
        str(row["id"]),
        Kind(row["kind"]),
        name=str(row.get("name", "")),
        bus=str(row.get("bus", "")),
        numa=numa,
        machine=str(row.get("machine", "")),
        model=str(row.get("model", "")),
        peer=row.get("peer"),
        domain=str(row.get("domain", "")),
        facts=tuple((key, str(value)) for key, value in row.items() if key not in _KNOWN),
    )


def _link(row: dict[str, Any]) -> Link:
    rate = float(row["gb_per_s"])
    latency = float(row.get("latency_us", 1.0))
    both = float(row.get("both_ways_gb_per_s", 2 * rate))
    if not 0 < rate < math.inf or not 0 <= latency < math.inf or not 0 < both < math.inf:
        raise ValueError(f"rate {rate:g} GB/s, latency {latency:g} us")
    origin = _ORIGINS[str(row.get("source", "default"))]
    source = Source(origin, str(row.get("source_text", "")), str(row.get("source_file", "")))
    both_ways = 2.0 if "both_ways_gb_per_s" not in row else both / rate
    return Link(
        str(row["a"]), str(row["b"]), LinkKind(row["kind"]), rate, source, latency, both_ways=both_ways
    )
