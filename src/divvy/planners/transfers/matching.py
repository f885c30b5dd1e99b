"""Which prefill place and which decode place take a request together: the pair whose cache is there first.

Every pair is tried under what is on the way already: the transfer is split over its routes, blocks that the
decode place has need not be sent, a place that is busy counts from when it is free. Equal labels decide
nothing; of equal times the earlier candidate wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from divvy.errors import InputError
from divvy.fleet.topology.graph import Kind
from divvy.planners.transfers.candidates import Finder, nics_of, vertices_on
from divvy.planners.transfers.online import Online
from divvy.planners.transfers.pairing import cached_prefix
from divvy.planners.transfers.plan import RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads

_CHUNKS: Final = 40
_WORTH_BYTES: Final = 256 * 1024
MOST_PAIRS: Final = 4096
_VERBS: Final = re.compile(r"(?:mlx\d|rocep|bnxt_re|irdma|hfi\d|qedr|rxe|efa)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """A candidate.

    Attributes:
        vertex: Where it is, an id of the topology.
        free_s: From now until it can begin: to send for a prefill place, to decode for a decode place.
        blocks: Hashes of blocks that it holds.
    """

    vertex: str
    free_s: float = 0.0
    blocks: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that needs a prefill and a decode place.

    Attributes:
        prefill: Candidates, the preferred first.
        decode: Candidates, the preferred first.
        kv_bytes: Size of its cache.
        deadline_s: From now; None for none.
        descriptors: Pieces that the cache lies in.
        blocks: Hashes of its blocks in order; without them nothing is taken as cached.
    """

    prefill: tuple[Place, ...]
    decode: tuple[Place, ...]
    kv_bytes: int
    deadline_s: float | None = None
    descriptors: int = 1
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tried:
    """A pair with its prediction.

    Attributes:
        prefill: Vertex.
        decode: Vertex.
        predicted_s: From now until the cache is there and the decode place is free; None without a way.
        sent_bytes: What has to be sent.
        cached_blocks: Leading blocks that the decode place holds.
        waited_s: Part of the time in which the prefill place is not free.
        transfer: What is sent; None where nothing has to be.
        plan: Its routes.
    """

    prefill: str
    decode: str
    predicted_s: float | None
    sent_bytes: int
    cached_blocks: int
    waited_s: float
    transfer: Transfer | None
    plan: RoutePlan


def tried_pairs(ways: Roads, finder: Finder, ask: Ask, moving: Sequence[Transfer] = ()) -> list[Tried]:
    """Return every pair, the best first; those without a way come last.

    Args:
        ways: The roads.
        finder: Finds routes; what it found is kept.
        ask: The request.
        moving: What is on the way already, with the bytes that are left.

    Raises:
        InputError: If there are too many pairs, or none has a way.
    """
    count = len(ask.prefill) * len(ask.decode)
    if count > MOST_PAIRS:
        raise InputError.one(
            "pair-many", f"{count} pairs of candidates", path="prefill", allowed=f"at most {MOST_PAIRS}"
        )
    online = Online(ways, finder, chunks=_CHUNKS, worth_bytes=_WORTH_BYTES)
    for transfer in moving:
        online.place(0, transfer, RoutePlan("moving"))
    tried = [_try(online, ask, prefill, decode) for prefill in ask.prefill for decode in ask.decode]
    order = sorted(
        range(count), key=lambda i: (t if (t := tried[i].predicted_s) is not None else float("inf"), i)
    )
    out = [tried[i] for i in order]
    if not out or out[0].predicted_s is None:
        names = ", ".join(f"{t.prefill} to {t.decode}" for t in out[:8])
        raise InputError.one(
            "pair-no-route",
            f"no pair has a route: {names}",
            path="decode",
            fix="check the topology with divvy topo check",
        )
    return out


def _try(online: Online, ask: Ask, prefill: Place, decode: Place) -> Tried:
    """Return one pair with its prediction."""
    kept = cached_prefix(ask.blocks, decode.blocks)
    size = ask.kv_bytes * (len(ask.blocks) - kept) // len(ask.blocks) if ask.blocks else ask.kv_bytes
    share = size / ask.kv_bytes
    if not size or prefill.vertex == decode.vertex:
        end = max(prefill.free_s, decode.free_s)
        return Tried(prefill.vertex, decode.vertex, end, 0, kept, prefill.free_s, None, RoutePlan("none"))
    pieces = max(1, round(ask.descriptors * share))
    transfer = Transfer("pair", prefill.vertex, decode.vertex, size, descriptors=pieces)
    if not online.options(prefill.vertex, decode.vertex).routes:
        return Tried(prefill.vertex, decode.vertex, None, size, kept, prefill.free_s, transfer, RoutePlan(""))
    seconds, plan = online.trial(transfer)
    end = max(prefill.free_s + seconds, decode.free_s)
    return Tried(prefill.vertex, decode.vertex, end, size, kept, prefill.free_s, transfer, plan)


def pair_document(ways: Roads, ask: Ask, tried: Sequence[Tried]) -> dict[str, Any]:
    """Return the ``divvy.pair/1`` document: the pair, its route, its time, and why."""
    best = tried[0]
    assert best.predicted_s is not None  # noqa: S101 - the first of tried_pairs has a way
    met = None if ask.deadline_s is None else best.predicted_s <= ask.deadline_s
    return {
        "schema": "divvy.pair/1",
        "topology": ways.topo.name,
        "pair": {"prefill": best.prefill, "decode": best.decode},
        "route": route_of(ways, best),
        "predicted_seconds": best.predicted_s,
        "sent_bytes": best.sent_bytes,
        "cached_blocks": best.cached_blocks,
        "deadline_seconds": ask.deadline_s,
        "deadline_met": met,
        "explanation": _explain(ways, ask, tried),
        "others": [
            {
                "prefill": t.prefill,
                "decode": t.decode,
                "predicted_seconds": t.predicted_s,
                "sent_bytes": t.sent_bytes,
                "cached_blocks": t.cached_blocks,
                "why": _why_not(ways, best, t),
            }
            for t in tried[1:33]
        ],
    }


def route_of(ways: Roads, tried: Tried) -> list[dict[str, Any]]:
    """Return the routes of a pair with their shares, the largest first."""
    rows = [
        {
            "kind": flow.kind,
            "via": list(vertices_on(ways, flow.path)[1:-1]),
            "share": flow.size_bytes / tried.sent_bytes,
            "gb_per_s": min(float(ways.capacity[r]) / times for r, times in flow.path.uses),
        }
        for flow in tried.plan.flows
    ]
    return sorted(rows, key=lambda row: -float(row["share"]))


def _explain(ways: Roads, ask: Ask, tried: Sequence[Tried]) -> list[str]:
    """Return why this pair, in sentences."""
    best = tried[0]
    assert best.predicted_s is not None  # noqa: S101 - as above
    routes = route_of(ways, best)
    lines = [
        f"{best.prefill} to {best.decode} ends first of {len(tried)} pairs: {_ms(best.predicted_s)} predicted"
    ]
    if best.cached_blocks:
        lines.append(
            f"{best.decode} holds {best.cached_blocks} of {len(ask.blocks)} blocks: "
            f"{best.sent_bytes:,} of {ask.kv_bytes:,} bytes are sent"
        )
    if routes:
        shares = ", ".join(f"{row['share']:.0%} by {' '.join(row['via'])}" for row in routes)
        lines.append(f"route: {shares}")
    else:
        lines.append("nothing has to be sent")
    if best.waited_s:
        lines.append(f"{_ms(best.waited_s)} of it the prefill place is not free")
    if len(tried) > 1:
        lines.append(f"next: {tried[1].prefill} to {tried[1].decode}, {_why_not(ways, best, tried[1])}")
    if ask.deadline_s is not None:
        left = ask.deadline_s - best.predicted_s
        lines.append(
            f"the deadline of {_ms(ask.deadline_s)} is "
            + (
                f"met with {_ms(left)} to spare"
                if left >= 0
                else f"missed by {_ms(-left)}: no pair is faster"
            )
        )
    return lines


def _why_not(ways: Roads, best: Tried, other: Tried) -> str:
    """Return what makes a pair later than the best."""
    if other.predicted_s is None or best.predicted_s is None:
        return "there is no route between them"
    later = other.predicted_s - best.predicted_s
    if later < 1e-9:
        return "as fast; the earlier candidate is taken"
    reasons = []
    if other.sent_bytes > best.sent_bytes:
        reasons.append(f"{other.sent_bytes - best.sent_bytes:,} bytes more to send")
    if other.waited_s > best.waited_s:
        reasons.append(f"its prefill place is free {_ms(other.waited_s - best.waited_s)} later")
    rates = [sum(float(r["gb_per_s"]) for r in route_of(ways, t)) for t in (best, other)]
    if rates[1] and rates[1] < rates[0] * 0.99:
        reasons.append(f"its routes carry {rates[1]:.4g} GB/s, not {rates[0]:.4g}")
    return f"{_ms(later)} later: {'; '.join(reasons) or 'its routes or its decode place are busier'}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.4g} ms"


def settings_of(ways: Roads, tried: Tried) -> dict[str, Any]:
    """Return what to set in today's stacks so that they take this pair's route.

    UCX divides among rails without regard to their rates, so of unequal rails it is given the fastest alone:
    two rails of 4 and 1 Gbit together were slower than the first (docs/reference/transfer-figures.md).
    """
    routes = route_of(ways, tried)
    out: dict[str, Any] = {"nixl_ucx": {}, "mooncake": {}, "dynamo": []}
    if not routes:
        return out
    best = max(float(row["gb_per_s"]) for row in routes)
    equal = [row for row in routes if float(row["gb_per_s"]) >= best * 0.8]
    for side, place in (("prefill", tried.prefill), ("decode", tried.decode)):
        machine = ways.topo.vertices[place].machine
        known = nics_of(ways, place)
        every = [v for row in routes for v in row["via"] if v in known]
        chosen = [v for row in equal for v in row["via"] if v in known]
        names = [_ucx_device(ways.topo.vertices[v].name or v) for v in dict.fromkeys(chosen)]
        count = str(max(1, len(names)))
        out["nixl_ucx"][side] = {
            "UCX_NET_DEVICES": ",".join(names) or "all",
            "UCX_MAX_RNDV_RAILS": count,
            "UCX_MAX_RMA_RAILS": count,
        }
        rest = [ways.topo.vertices[v].name or v for v in known if v not in every]
        used = [ways.topo.vertices[v].name or v for v in dict.fromkeys(every)]
        out["mooncake"][side] = {"nic_priority_matrix": {_location(ways, place): [used, rest]}}
        domain = ways.topo.vertices[place].domain or ways.topo.name
        out["dynamo"].append(
            {"node": machine or place, "label": f"divvy.dev/transfer-domain={_label(domain)}"}
        )
    return out


def _ucx_device(name: str) -> str:
    """Return a NIC as UCX names it: verbs devices with their port, network devices as they are."""
    return f"{name}:1" if _VERBS.match(name) else name


def _location(ways: Roads, place: str) -> str:
    """Return a place as Mooncake names its memory: ``cuda:2``, ``cpu:0``."""
    vertex = ways.topo.vertices[place]
    if vertex.kind is not Kind.GPU:
        return f"cpu:{vertex.numa or 0}"
    mine = [v.id for v in ways.topo.of_kind(Kind.GPU) if v.machine == vertex.machine]
    return f"cuda:{mine.index(place)}"


def _label(text: str) -> str:
    """Return a text as the value of a Kubernetes label."""
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in text)[:63]
    return kept.strip("-_.") or "all"


def read_ask(ways: Roads, body: Mapping[str, Any]) -> Ask:
    """Return a request with its places as vertices of the topology.

    Args:
        ways: The roads.
        body: ``prefill`` and ``decode`` (each a list of ids, or of objects ``place``, ``free_seconds``,
            ``cached``), ``kv_bytes``, ``deadline_seconds``, ``descriptors``, ``hash_ids``, ``cached``.

    Raises:
        InputError: With every fault.
    """
    faults = []
    held = {str(k): frozenset(map(str, v)) for k, v in (body.get("cached") or {}).items()}

    def places(side: str, *, source: bool) -> tuple[Place, ...]:
        out: list[Place] = []
        for i, entry in enumerate(body[side]):
            row = {"place": entry} if isinstance(entry, str) else entry
            try:
                vertex = ways.end(str(row["place"]), source=source)
            except InputError as error:
                fault = error.faults[0]
                faults.append(
                    type(fault)(fault.code, f"{side}[{i}]", fault.message, fault.allowed, fault.fix)
                )
                continue
            blocks = frozenset(map(str, row.get("cached") or ())) | held.get(str(row["place"]), frozenset())
            out.append(Place(vertex, float(row.get("free_seconds") or 0.0), blocks))
        return tuple(out)

    prefill, decode = places("prefill", source=True), places("decode", source=False)
    if faults:
        raise InputError("the request cannot be paired", faults)
    return Ask(
        prefill,
        decode,
        int(body["kv_bytes"]),
        body.get("deadline_seconds"),
        int(body.get("descriptors") or 1),
        tuple(map(str, body.get("hash_ids") or ())),
    )
