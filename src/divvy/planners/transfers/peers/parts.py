"""What the rules are made of: flows on named paths, and the refusal where a rule has no path."""

from __future__ import annotations

from collections.abc import Sequence

from divvy.perf.transfer import overhead
from divvy.planners.transfers.candidates import Candidate, Finder
from divvy.planners.transfers.plan import Flow, Refused, RoutePlan, Transfer


def put(out: RoutePlan, index: int, transfer: Transfer, parts: Sequence[tuple[Candidate, float]]) -> None:
    """Add the flows of one transfer, given as routes with their share of its bytes."""
    total = sum(share for _, share in parts)
    for candidate, share in parts:
        part = share / total
        pieces = max(1, round(transfer.descriptors * part))
        # None of these systems gathers descriptors: each is paid for.
        seconds = overhead(candidate.kind, float("inf"), pieces, {candidate.kind: candidate.cost}).seconds
        out.flows.append(
            Flow(
                index,
                candidate.kind,
                candidate.path,
                transfer.size_bytes * part,
                1.0,
                transfer.release_s + seconds,
            )
        )


def refuse(out: RoutePlan, transfer: Transfer, why: str) -> None:
    """Say that the rule has no way for a transfer."""
    out.refused.append(
        Refused(transfer.id, "no-route-by-rule", f"{transfer.source} to {transfer.target}: {why}")
    )


def by_kind(finder: Finder, transfer: Transfer, *kinds: str) -> Candidate | None:
    """Return the first candidate of the first kind that there is."""
    known = finder.between(transfer.source, transfer.target)
    return next((c for kind in kinds for c in known if c.kind == kind), None)


def by_nics(finder: Finder, transfer: Transfer, out: str, into: str) -> Candidate | None:
    """Return the route through two NICs, None where the network does not join them."""
    arcs = finder.rdma(transfer.source, out, into, transfer.target)
    return finder.candidate(arcs) if arcs else None
