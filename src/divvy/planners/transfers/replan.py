"""Plan again for the rest, once a link is slow or dead: from what has arrived, over what is left.

Every byte is planned once: what has arrived stays where it is, what has not is planned anew from then on.
Bytes in flight on the broken link count as not arrived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from divvy.errors import Fault, InputError
from divvy.fleet.topology.graph import Origin, Source, Topology
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.plan import Refused, RoutePlan, Transfer
from divvy.planners.transfers.registry import PLANNERS
from divvy.planners.transfers.roads import Roads, roads


@dataclass(frozen=True, slots=True)
class Change:
    """What a link carries now.

    Attributes:
        a: One end.
        b: The other end.
        gb_per_s: One-way rate, all links between these ends together; 0 for a dead link.
    """

    a: str
    b: str
    gb_per_s: float


@dataclass(slots=True)
class Replanned:
    """The plan for the rest.

    Attributes:
        ways: The roads after the change.
        finder: Their candidates.
        rest: Transfers with the bytes that have not arrived.
        done: Transfers of which everything has arrived.
        plan: Routes of the rest.
        refused: Transfers that have no way any more.
    """

    ways: Roads
    finder: Finder
    rest: list[Transfer]
    done: list[str]
    plan: RoutePlan
    refused: list[Refused]


def changed(topo: Topology, changes: Sequence[Change]) -> Topology:
    """Return the topology with the rates that links have now; dead links are left out.

    Raises:
        InputError: If there is no such link; the fault lists the links of the first end.
    """
    faults: list[Fault] = []
    links = list(topo.links)
    for change in changes:
        a, b = topo.resolve(change.a), topo.resolve(change.b)
        mine = [k for k in links if {k.a, k.b} == {a, b}]
        if not mine or a is None:
            ends = [k.b if k.a == a else k.a for k in topo.links if a in (k.a, k.b)]
            allowed = ", ".join(dict.fromkeys(ends)) if ends else ", ".join(list(topo.vertices)[:24])
            text = f"no link joins {change.a!r} and {change.b!r}"
            faults.append(
                Fault("link-unknown", "--link", text, f"links of {a}: {allowed}" if ends else allowed)
            )
            continue
        total = sum(k.gb_per_s for k in mine)
        source = Source(Origin.MEASURED, f"{change.gb_per_s:g} of {total:g} GB/s left", "--link")
        links = [
            k if k not in mine else replace(k, gb_per_s=k.gb_per_s * change.gb_per_s / total, source=source)
            for k in links
            if k not in mine or change.gb_per_s > 0
        ]
    if faults:
        raise InputError("some links are not there", faults)
    return topo.with_links(links)


def remaining(
    transfers: Sequence[Transfer], moved: Mapping[str, int], now_s: float
) -> tuple[list[Transfer], list[str]]:
    """Return the transfers with the bytes that have not arrived, and the ids of those that have arrived.

    Raises:
        InputError: If more has arrived than there was, or of a transfer that there is not.
    """
    size = {t.id: t.size_bytes for t in transfers}
    faults = [
        Fault(
            "moved",
            f"moved.{name}",
            f"{count} of {size.get(name, 0)} bytes",
            f"0 to the size; {', '.join(size)}",
        )
        for name, count in moved.items()
        if not 0 <= count <= size.get(name, -1)
    ]
    if faults:
        raise InputError("what has arrived does not fit the transfers", faults)
    rest = [
        replace(t, size_bytes=t.size_bytes - moved.get(t.id, 0), release_s=max(t.release_s, now_s))
        for t in transfers
        if moved.get(t.id, 0) < t.size_bytes
    ]
    left = {t.id for t in rest}
    return rest, [t.id for t in transfers if t.id not in left]


def replan(
    ways: Roads,
    transfers: Sequence[Transfer],
    moved: Mapping[str, int],
    changes: Sequence[Change],
    now_s: float,
    *,
    planner: str = "divvy",
    seed: int = 0,
) -> Replanned:
    """Return the plan for what has not arrived, over the links as they are now.

    Args:
        ways: The roads before the change.
        transfers: The whole batch, as it was given; each has a way before the change.
        moved: Bytes that have arrived, by transfer.
        changes: Links that are slow or dead.
        now_s: When the change was seen.
        planner: Name of the planner.
        seed: For planners that choose at random.

    Raises:
        InputError: If a link or a transfer is unknown.
    """
    after = roads(changed(ways.topo, changes), ways.costs)
    finder = Finder(after)
    rest, done = remaining(transfers, moved, now_s)
    reachable = [t for t in rest if finder.between(t.source, t.target)]
    refused = [
        Refused(t.id, "no-link", f"no link of any kind joins {t.source} and {t.target} any more")
        for t in rest
        if t not in reachable
    ]
    plan = PLANNERS[planner](after, finder, reachable, seed) if reachable else RoutePlan(planner)
    return Replanned(after, finder, reachable, done, plan, refused)
