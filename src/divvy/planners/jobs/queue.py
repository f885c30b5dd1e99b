"""Queued jobs of one account, in the account's own order.

Order: priority, then the debug rule, then fair share between authors, then age. Jobs of one shape (rank,
size, device model) are interchangeable for capacity, so a pass tries at most one job per shape: if the
first does not fit, none does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from divvy.fleet.job import JobSpec

#: Order inside an account before authors and age: (-priority, not debug). Smaller goes first.
Rank = tuple[int, bool]
_Shape = tuple[int, bool, int, int, str, tuple[str, ...]]


class Head(NamedTuple):
    """The first job of a shape; heads sort in the account's order.

    Attributes:
        rank: Priority and debug rule.
        author_usage: What its author has had lately; less goes first.
        submitted: Age.
        row: The job.
        gpus: Devices it asks for.
        per_node: Devices on each node, 0 for the planner's choice.
        model: Device model, empty for any.
        clusters: Clusters where it may run, none for any.
    """

    rank: Rank
    author_usage: float
    submitted: int
    row: int
    gpus: int
    per_node: int
    model: str
    clusters: tuple[str, ...] = ()


class AccountQueue:
    """The queue of one account; allocated and unallocated jobs have one each."""

    __slots__ = (
        "_best",
        "_heads",
        "_least",
        "_members",
        "_models",
        "_shapes",
        "_usage",
        "count",
        "gpus",
        "version",
    )

    def __init__(self) -> None:
        self.count = 0
        self.version = 0
        """Grows whenever the queue changes."""
        self.gpus = 0
        self._members: dict[int, _Shape] = {}
        self._shapes: dict[_Shape, dict[str, list[tuple[int, int]]]] = {}
        self._heads: list[Head] | None = []
        self._least: dict[_Shape, int] = {}
        """Shortest minimum runtime per shape, where somebody asked for it."""
        self._best: Rank | None = None
        self._usage: Mapping[str, float] = {}
        self._models: frozenset[str] | None = frozenset()

    def __contains__(self, row: int) -> bool:
        """Return whether a job is in the queue."""
        return row in self._members

    def rows(self) -> list[int]:
        """Return all jobs, in no particular order."""
        return list(self._members)

    def add(self, row: int, spec: JobSpec, submitted: int, *, debug: bool) -> None:
        """Enqueue a job."""
        shape = (-spec.priority, not debug, spec.gpus, spec.per_node, spec.model, spec.clusters)
        self._members[row] = shape
        self.version += 1
        self.count += 1
        self.gpus += spec.gpus
        authors = self._shapes.get(shape)
        if authors is None:
            authors = self._shapes[shape] = {}
            self._best = self._models = None
        if spec.min_runtime < self._least.get(shape, 0):
            self._least[shape] = spec.min_runtime
        heap = authors.setdefault(spec.author, [])
        if not heap or (submitted, row) < heap[0]:
            self._heads = None
        heappush(heap, (submitted, row))

    def remove(self, row: int, spec: JobSpec) -> None:
        """Take a job out, wherever it stands."""
        shape = self._members.pop(row)
        self.version += 1
        self.count -= 1
        self.gpus -= spec.gpus
        if self._least.get(shape) == spec.min_runtime:
            del self._least[shape]
        authors = self._shapes[shape]
        heap = authors[spec.author]
        if heap[0][1] == row:
            self._heads = None
            # Jobs that left from the middle of a heap are dropped when they come to its top.
            while heap and self._members.get(heap[0][1]) != shape:
                heappop(heap)
            if not heap:
                del authors[spec.author]
                if not authors:
                    del self._shapes[shape]
                    self._best = self._models = None

    def best_rank(self) -> Rank | None:
        """Return the rank of the job that goes first, None if there is none."""
        if self._best is None and self._shapes:
            self._best = min(self._shapes)[:2]
        return self._best

    def models(self) -> frozenset[str]:
        """Return the device models that its jobs ask for."""
        if self._models is None:
            self._models = frozenset(shape[4] for shape in self._shapes)
        return self._models

    def authors_changed(self) -> None:
        """Forget the order: the usage of an author changed."""
        self._heads = None

    def ready(self) -> list[Head] | None:
        """Return the first job of every shape as last computed, None if something changed since."""
        return self._heads

    def heads(self, usage: Mapping[str, float]) -> list[Head]:
        """Compute, keep and return the first job of every shape, in the account's order."""
        self._usage = usage
        self._heads = sorted(self._first(shape, authors, usage) for shape, authors in self._shapes.items())
        return self._heads

    def permitted(
        self, author_may: Callable[[str, int], bool], job_may: Callable[[int], bool] | None = None
    ) -> list[Head]:
        """Return the first job that is permitted of every shape that has one, after `heads`.

        Args:
            author_may: Whether an author may have so many devices more.
            job_may: Whether a job may start; None: all may.
        """
        found: list[Head] = []
        for head in self._heads or []:
            shape = self._members[head.row]
            authors = self._shapes[shape]
            author = next(name for name, heap in authors.items() if heap[0][1] == head.row)
            if author_may(author, head.gpus) and (job_may is None or job_may(head.row)):
                found.append(head)
                continue
            others = {name: heap for name, heap in authors.items() if author_may(name, head.gpus)}
            if job_may is not None:
                others = {name: self._may_start(shape, heap, job_may) for name, heap in others.items()}
            others = {name: heap for name, heap in others.items() if heap}
            if others:
                found.append(self._first(shape, others, self._usage))
        return sorted(found)

    def shorter(
        self, head: Head, most: int, specs: Sequence[JobSpec], job_may: Callable[[int], bool]
    ) -> Head | None:
        """Return the first permitted job of a head's shape with a minimum runtime of ``most`` or less."""
        shape = self._members[head.row]
        authors = self._shapes[shape]
        least = self._least.get(shape)
        if least is None:
            rows = (row for heap in authors.values() for _, row in heap if self._members.get(row) == shape)
            least = self._least[shape] = min(specs[row].min_runtime for row in rows)
        if least > most:
            return None
        found = {
            name: self._may_start(shape, heap, lambda row: specs[row].min_runtime <= most and job_may(row))
            for name, heap in authors.items()
        }
        found = {name: heap for name, heap in found.items() if heap}
        return self._first(shape, found, self._usage) if found else None

    def _may_start(
        self, shape: _Shape, heap: list[tuple[int, int]], job_may: Callable[[int], bool]
    ) -> list[tuple[int, int]]:
        """Return the first job of a heap that may start, as a heap of one; empty if none may."""
        there = (entry for entry in heap if self._members.get(entry[1]) == shape and job_may(entry[1]))
        return [first] if (first := min(there, default=None)) is not None else []

    def authors(self) -> set[str]:
        """Return the authors with queued jobs."""
        return {author for authors in self._shapes.values() for author in authors}

    @staticmethod
    def _first(shape: _Shape, authors: dict[str, list[tuple[int, int]]], usage: Mapping[str, float]) -> Head:
        share, (submitted, row) = min((usage[author], heap[0]) for author, heap in authors.items())
        return Head(shape[:2], share, submitted, row, *shape[2:])
