"""The report of a transfer (``divvy.move/1``): prediction beside outcome, route, rails, healing, proof."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from divvy.transfer.checksum import NAME
from divvy.transfer.interfaces import Passed
from divvy.transfer.outgoing import Outgoing
from divvy.transfer.proof import prove

if TYPE_CHECKING:
    from divvy.transfer.peer import Peer

SCHEMA: Final = "divvy.move/1"


def report(
    peer: Peer,
    outgoing: Outgoing,
    theirs: Mapping[str, Any],
    payload: Mapping[str, int],
    after: Mapping[str, Passed],
) -> dict[str, Any]:
    """Return the report of a transfer that has ended.

    Args:
        peer: Where it went.
        outgoing: The transfer.
        theirs: What the other side said at the end.
        payload: Bytes that this agent gave to each rail meanwhile.
        after: Counters of the interfaces at the end.
    """
    machine, wish = outgoing.machine, outgoing.wish
    total = sum(machine.sizes)
    seconds = max(1, machine.ended_us - outgoing.began_us) / 1e6
    devices = {route.name: route.here.device for route in peer.routes}
    counts = machine.counts
    repeated = 2 * max(machine.sizes) * max(counts.retries, counts.rerouted)
    proof = prove(devices, payload, outgoing.before, after, outgoing.routes, repeated_bytes=repeated)
    return {
        "schema": SCHEMA,
        "transfer": f"{outgoing.number:016x}",
        **_what(peer, outgoing, theirs),
        "verdict": str(machine.verdict),
        "reason": machine.reason,
        "peer_verdict": theirs.get("verdict", "unknown"),
        "seconds": seconds,
        "gb_per_s": total / seconds / 1e9,
        "met_deadline": None if wish.deadline_us is None else machine.ended_us <= wish.deadline_us,
        "prediction": _prediction(outgoing, seconds),
        "route": list(outgoing.routes),
        "rails": [
            {"route": name, "bytes": machine.moved.get(name, 0), "rate_gb_per_s": rail.rate / 1e3}
            | {"up": rail.usable, "lost": rail.lost}
            for name, rail in peer.scheduler.rails.items()
        ],
        **_healing(outgoing, theirs),
        "path_proof": proof,
    }


def _what(peer: Peer, outgoing: Outgoing, theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was moved, from where to where, for whom."""
    machine, wish = outgoing.machine, outgoing.wish
    return {
        "source": outgoing.region.place.to_json() | {"name": outgoing.region.name},
        "target": theirs.get("target", {"host": peer.name}),
        "peer": peer.name,
        "account": wish.account,
        "priority": wish.priority,
        "backend": peer.backend,
        "checksum": NAME,
        "bytes": sum(machine.sizes),
        "descriptors": outgoing.descriptors,
        "pieces": outgoing.pieces,
        "chunks": len(machine.sizes),
    }


def _healing(outgoing: Outgoing, theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was lost, doubled, repeated, and what both sides have accounted."""
    machine, counts = outgoing.machine, outgoing.machine.counts
    return {
        "accounted_bytes": machine.accounted,
        "peer_accounted_bytes": theirs.get("accounted_bytes"),
        "lost_bytes": sum(machine.sizes) - machine.accounted,
        "accounts_agree": theirs.get("accounted_bytes") == machine.accounted,
        "retries": counts.retries,
        "corrupt_chunks": counts.corrupt,
        "rerouted_chunks": counts.rerouted,
        "reroute_ms": counts.reroute_us / 1e3,
        "late_answers": counts.late,
        "discarded_chunks": theirs.get("doubled", 0),
    }


def _prediction(outgoing: Outgoing, seconds: float) -> dict[str, Any]:
    made = outgoing.prediction
    return {
        "seconds": made.seconds,
        "low_s": made.low,
        "high_s": made.high,
        "ratio": seconds / made.seconds,
        "is_alone": outgoing.alone,
    }
