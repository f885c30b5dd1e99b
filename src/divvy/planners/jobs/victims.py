"""Which running jobs give way: the fewest that make room, in the order the policy sets.

Order: over-service band, then fewest surplus devices evicted, then least work at stake, then youngest.
A victim that does not help is never chosen, and nobody is pushed below a floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from divvy.fleet.decision import Placement
from divvy.planners.jobs.holdings import Run
from divvy.planners.jobs.index import JobIndex
from divvy.planners.jobs.placement import demands

#: No bound on the devices evicted beyond the need.
UNBOUNDED: Final = 1 << 30


class Candidate(NamedTuple):
    """A run that may be preempted for the requester, by itself."""

    run: Run
    band: int
    """How over-served its side is; the highest band goes first."""
    guards: tuple[int, ...]
    """Tree rows that must not fall below their floor."""


class Request(NamedTuple):
    """What is asked: devices, and the nodes they may be on (a bit set).

    ``surplus`` bounds the devices that may be evicted beyond the need, so that a small job does not end a
    large gang.
    """

    gpus: int
    per_node: int
    size: int
    allowed: int
    surplus: int = UNBOUNDED

    def demands(self) -> list[int]:
        """Return the devices needed per node, largest first; nothing if no node would do."""
        return demands(self.gpus, self.per_node, self.size)


_Choice = tuple[tuple[float, ...], int, list[Candidate]]


class VictimSearch:
    """One search for victims on one index.

    Args:
        index: Holdings; read only.
        spare: Weight above the floor, per tree row that guards a candidate.
    """

    def __init__(self, index: JobIndex, candidates: Iterable[Candidate], spare: dict[int, float]) -> None:
        self._index = index
        self._spare = spare
        self._on_node: dict[int, list[Candidate]] = {}
        self._gpus_on: dict[int, int] = {}
        for candidate in candidates:
            for node, gpus in candidate.run.placement:
                self._on_node.setdefault(node, []).append(candidate)
                self._gpus_on[node] = self._gpus_on.get(node, 0) + gpus

    def find(self, request: Request) -> tuple[Placement, list[Run]] | None:
        """Return where the gang goes and who gives way, unallocated runs included, or None."""
        chosen: dict[int, Candidate] = {}
        used = 0
        slots: list[tuple[int, int]] = []
        demands = request.demands()
        if not demands:
            return None
        for gpus in sorted(set(demands), reverse=True):
            count = demands.count(gpus)
            choices = sorted(
                choice
                for node in self._nodes(request.allowed & ~used, gpus)
                if (choice := self._on(node, gpus, request.surplus)) is not None
            )
            for _, node, victims in choices:
                if count == 0:
                    break
                fresh = [victim for victim in victims if victim.run.row not in chosen]
                if not self._may(list(chosen.values()), fresh):
                    continue
                chosen.update((victim.run.row, victim) for victim in fresh)
                used |= 1 << node
                slots.append((node, gpus))
                count -= 1
            if count:
                return None
        placement = tuple(sorted(slots))
        runs = [victim.run for victim in chosen.values()]
        return placement, runs + unallocated_in_the_way(self._index, placement, runs)

    def _nodes(self, allowed: int, gpus: int) -> list[int]:
        """Return the nodes that could serve ``gpus`` devices at all."""
        loose = self._index.loose.free
        rows = [
            row for row, here in self._gpus_on.items() if loose[row] + here >= gpus and allowed >> row & 1
        ]
        if gpus <= self._index.loose.largest():
            rows += [
                row
                for row, room in enumerate(loose)
                if room >= gpus and row not in self._on_node and allowed >> row & 1
            ]
        return rows

    def _on(self, node: int, gpus: int, most: int) -> _Choice | None:
        """Return the best victims on one node with their score, None if they would not be enough."""
        need = gpus - self._index.loose.free[node]
        if need <= 0:
            return (0.0, 0.0, 0.0, 0.0), node, []
        candidates = self._on_node.get(node, [])
        single: tuple[tuple[float, ...], Candidate] | None = None
        for candidate in candidates:
            if need <= _gpus_on(candidate.run, node) and candidate.run.gpus - need <= most:
                run = candidate.run
                score = (-candidate.band, run.gpus - need, run.lost, -run.started, run.row)
                if single is None or score < single[0]:
                    single = score, candidate
        if single is not None:
            return single[0][:4], node, [single[1]]
        several = self._several(candidates, node, need)
        if several is None:
            return None
        surplus = sum(c.run.gpus for c in several) - need
        if surplus > most:
            return None
        lost = sum(c.run.lost for c in several)
        return (
            (-min(c.band for c in several), surplus, lost, -max(c.run.started for c in several)),
            node,
            several,
        )

    def _several(self, candidates: Sequence[Candidate], node: int, need: int) -> list[Candidate] | None:
        order = sorted(
            candidates,
            key=lambda c: (
                -c.band,
                -_gpus_on(c.run, node),
                c.run.gpus,
                c.run.lost,
                -c.run.started,
                c.run.row,
            ),
        )
        picked: list[Candidate] = []
        have = 0
        for candidate in order:
            if have >= need:
                break
            if self._may(picked, [candidate]):
                picked.append(candidate)
                have += _gpus_on(candidate.run, node)
        if have < need:
            return None
        for candidate in list(picked):
            here = _gpus_on(candidate.run, node)
            if have - here >= need:
                picked.remove(candidate)
                have -= here
        return picked

    def _may(self, already: Sequence[Candidate], more: Sequence[Candidate]) -> bool:
        """Return whether taking more victims leaves every guarded row at its floor."""
        taken: dict[int, int] = {}
        for candidate in (*already, *more):
            for row in candidate.guards:
                taken[row] = taken.get(row, 0) + candidate.run.weight
        return all(weight <= self._spare[row] for row, weight in taken.items())


def unallocated_in_the_way(index: JobIndex, placement: Placement, victims: Sequence[Run]) -> list[Run]:
    """Return the unallocated runs to evict so that a placement fits once the victims have left.

    Per node the single smallest that is enough, else the largest until it is; the youngest among equals,
    which loses least.
    """
    evicted: dict[int, Run] = {}
    for node, gpus in placement:
        need = (
            gpus - index.free.free[node] - sum(_gpus_on(run, node) for run in (*victims, *evicted.values()))
        )
        spare = [
            run
            for run in index.on_node.get(node, {}).values()
            if not run.allocated and run.row not in evicted
        ]
        while need > 0 and spare:
            enough = [run for run in spare if _gpus_on(run, node) >= need]
            pool = enough or spare
            sign = 1 if enough else -1
            run = min(pool, key=lambda r: (sign * _gpus_on(r, node), r.gpus, -r.started, r.row))
            evicted[run.row] = run
            spare.remove(run)
            need -= _gpus_on(run, node)
    return list(evicted.values())


def _gpus_on(run: Run, node: int) -> int:
    placement = run.placement
    if len(placement) == 1:
        return placement[0][1] if placement[0][0] == node else 0
    return sum(gpus for place, gpus in placement if place == node)
