"""What the backfilling baselines share: queues by shape, and the reservation of the first blocked job.

EASY backfill (Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995): the first job that cannot start gets
a reservation at the earliest time at which enough devices are free if every running job lasts as long as
its user's limit says; any later job may start now if it does not delay that.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from divvy.fleet.decision import Placement
from divvy.fleet.job import JobSpec
from divvy.fleet.node import Node, NodeState
from divvy.planners.jobs.placement import FreeMap
from divvy.units import DAY

ASSUMED_LIMIT: Final = DAY
"""Limit of a job whose user gave none, as a partition's default time does in Slurm."""
_GONE: Final = 1 << 62
_UNKNOWN: Final = -2


def limit_of(spec: JobSpec) -> int:
    """Return how long the scheduler must expect a run to last, ms."""
    return spec.time_limit or ASSUMED_LIMIT


class Shape(NamedTuple):
    """What a gang asks of the nodes."""

    gpus: int
    per_node: int
    model: str


def shape_of(spec: JobSpec) -> Shape:
    """Return the shape of a job."""
    return Shape(spec.gpus, spec.per_node, spec.model)


class LimitQueue:
    """Rows in the order in which they were first seen, with the first whose limit is short enough.

    A minimum tree over limits: a row keeps its place while it is away, so that one that comes back is
    where it was.
    """

    __slots__ = ("_head", "_least", "_place", "_rows", "_width", "key", "shape", "waiting")

    def __init__(self, key: Any, shape: Shape) -> None:
        self.key = key
        self.shape = shape
        self._width = 8
        self._least = [_GONE] * (2 * self._width)
        self._rows: list[int] = []
        self._place: dict[int, int] = {}
        self._head = _UNKNOWN
        self.waiting = 0

    def add(self, row: int, limit: int) -> None:
        """Put a row into the queue; rows are first added in rising order."""
        place = self._place.get(row)
        if place is None:
            place = self._place[row] = len(self._rows)
            self._rows.append(row)
            if place == self._width:
                self._grow()
        if self._least[self._width + place] == _GONE:
            self.waiting += 1
        self._set(place, limit)
        if self.waiting == 1 or (self._head != _UNKNOWN and row < self._head):
            self._head = row

    def remove(self, row: int) -> bool:
        """Take a row out of the queue; return whether it was in it."""
        place = self._place.get(row)
        if place is None or self._least[self._width + place] == _GONE:
            return False
        self.waiting -= 1
        self._set(place, _GONE)
        if row == self._head:
            self._head = _UNKNOWN
        return True

    def shortest(self) -> int:
        """Return the least limit in the queue, more than any limit where it is empty."""
        return self._least[1]

    def head(self) -> int:
        """Return the first row; somebody waits."""
        if self._head == _UNKNOWN:
            self._head = self.first()
        return self._head

    def first(self, limit: int = _GONE - 1) -> int:
        """Return the first row whose limit is at most ``limit``, -1 where there is none."""
        least = self._least
        if least[1] > limit:
            return -1
        node, width = 1, self._width
        while node < width:
            node *= 2
            if least[node] > limit:
                node += 1
        return self._rows[node - width]

    def _set(self, place: int, limit: int) -> None:
        least = self._least
        node = self._width + place
        least[node] = limit
        while node > 1:
            other = least[node ^ 1]
            node //= 2
            smaller = min(other, limit)
            if least[node] == smaller:
                return
            least[node] = limit = smaller

    def _grow(self) -> None:
        leaves = self._least[self._width :] + [_GONE] * self._width
        self._width *= 2
        self._least = [_GONE] * self._width + leaves
        for node in range(self._width - 1, 0, -1):
            self._least[node] = min(self._least[2 * node], self._least[2 * node + 1])


class Reservation(NamedTuple):
    """What is held for the first blocked job.

    Attributes:
        at: Earliest time at which it can start by the limits of what runs, ms.
        spare: Per reserved node, the devices that are left there at that time.
    """

    at: int
    spare: tuple[tuple[int, int], ...]


class Timeline:
    """When devices come free on each node, if every run lasts as long as its limit."""

    __slots__ = ("_ends", "_runs")

    def __init__(self) -> None:
        self._ends: list[list[tuple[int, int, int]]] = []
        self._runs: dict[int, tuple[int, Placement]] = {}

    def begin(self, row: int, end: int, placement: Placement) -> None:
        """Note a run and its expected end, or correct it."""
        self.finish(row)
        self._runs[row] = (end, placement)
        for node, gpus in placement:
            while len(self._ends) <= node:
                self._ends.append([])
            insort(self._ends[node], (end, row, gpus))

    def finish(self, row: int) -> None:
        """Forget a run, if it is known."""
        known = self._runs.pop(row, None)
        if known is not None:
            end, placement = known
            for node, gpus in placement:
                ends = self._ends[node]
                del ends[bisect_left(ends, (end, row, gpus))]

    def free_at(self, node: int, free: int, at: int) -> int:
        """Return the devices free on a node at a time."""
        for end, _, gpus in self._ends[node] if node < len(self._ends) else ():
            if end > at:
                break
            free += gpus
        return free

    def reserve(self, shape: Shape, nodes: Sequence[Node], room: FreeMap, now: int) -> Reservation | None:
        """Return the earliest reservation for a blocked gang; None where no end of a run makes room."""
        at = now
        held: list[tuple[int, int]] = []
        for needed, count in _parts(shape, room.node_size(shape.model)):
            taken = {row for row, _ in held}
            usable = [
                row
                for row, node in enumerate(nodes)
                if node.state is NodeState.UP and shape.model in ("", node.model) and row not in taken
            ]
            times = self._earliest(needed, count, usable, room.free, now)
            if len(times) < count:
                return None
            at = max(at, times[-1][0])
            held += [(row, needed) for _, row in times]
        if not held:
            return None
        return Reservation(
            at, tuple((row, self.free_at(row, room.free[row], at) - needed) for row, needed in held)
        )

    def _earliest(
        self, needed: int, count: int, rows: Sequence[int], free: Sequence[int], now: int
    ) -> list[tuple[int, int]]:
        """Return (time, node) of the nodes that first have ``needed`` devices free, soonest first."""
        found: list[tuple[int, int]] = []
        worst, none = _GONE, ()
        for row in rows:
            there = free[row]
            if there >= needed:
                insort(found, (now, row))
            else:
                for end, _, gpus in self._ends[row] if row < len(self._ends) else none:
                    if end >= worst:
                        break
                    there += gpus
                    if there >= needed:
                        insort(found, (end if end > now else now + 1, row))
                        break
            if len(found) > count:
                found.pop()
            if len(found) == count:
                worst = found[-1][0]
        return found


def _parts(shape: Shape, size: int) -> list[tuple[int, int]]:
    """Return what a gang needs as (devices on a node, nodes); ``size`` is the largest node's."""
    if shape.per_node and shape.per_node < shape.gpus:
        return [(shape.per_node, shape.gpus // shape.per_node)]
    if shape.gpus <= size:
        return [(shape.gpus, 1)]
    count, rest = divmod(shape.gpus, size) if size else (0, 0)
    return [part for part in ((size, count), (rest, 1 if rest else 0)) if part[1]]


def fitting(shapes: Iterable[Shape], nodes: Sequence[Node]) -> dict[Shape, bool]:
    """Return which shapes the empty fleet in service could hold."""
    empty = FreeMap(nodes, [node.gpus if node.state is NodeState.UP else 0 for node in nodes])
    return {shape: empty.find(*shape) is not None for shape in shapes}
