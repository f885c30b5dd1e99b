"""The board: live jobs as a reader knows them, kept in the order in which they would be served.

The order is the planner's: accounts by rank; inside one, priority, the debug rule, authors by usage, age.
It is the order if everything stood still; each start changes balances, so a position is a statement about
now and not a promise. The board is kept up to date job by job: nothing is sorted when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import groupby
from typing import Protocol

from divvy.control.view import View
from divvy.fleet.job import JobSpec, Phase, StopCause


class JobSight(Protocol):
    """A job as a reader sees it: what was asked for, and what has become of it. Times are ms."""

    @property
    def spec(self) -> JobSpec:
        """Return what was asked for."""

    @property
    def debug(self) -> bool:
        """Return whether the debug rule favours it."""

    @property
    def phase(self) -> Phase | None:
        """Return the phase; None for a job that is stored and that the scheduler has not yet seen."""

    @property
    def submitted(self) -> int:
        """Return when it was submitted."""

    @property
    def queued(self) -> int:
        """Return when it entered the queue last."""

    @property
    def started(self) -> int | None:
        """Return when the present or last run began; None before the first."""

    @property
    def stopped(self) -> int | None:
        """Return when it ended for good; None before."""

    @property
    def protected_until(self) -> int:
        """Return the end of the present run's protection; 0 where there is none."""

    @property
    def placement(self) -> tuple[tuple[str, int], ...]:
        """Return the (node name, devices) pairs of the present run."""

    @property
    def preemptions(self) -> int:
        """Return how often it was preempted."""

    @property
    def attempt(self) -> int:
        """Return the runs begun."""

    @property
    def stop_cause(self) -> StopCause | None:
        """Return why the present run was told to leave or the last one ended; None before."""

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the last run, where there was a process to ask."""

    @property
    def note(self) -> str:
        """Return why the scheduler refused it; empty otherwise."""

    def label(self, now: int) -> str:
        """Return the state as people know it, in the words of `JobTable.label`, or ``accepted``."""


def is_waiting(job: JobSight) -> bool:
    """Return whether a job waits for devices."""
    return job.phase in (None, Phase.QUEUED)


def is_over(job: JobSight) -> bool:
    """Return whether a job is over for good."""
    return job.phase is not None and job.phase.terminal


_Rank = tuple[int, bool]
_Aged = tuple[int, str]


class Lane:
    """Waiting jobs of one account, allocated or unallocated ones, in the account's order."""

    __slots__ = ("_ranks", "count")

    def __init__(self) -> None:
        self.count = 0
        self._ranks: dict[_Rank, dict[str, list[_Aged]]] = {}

    def add(self, job: JobSight) -> None:
        """Enqueue a job."""
        authors = self._ranks.setdefault((-job.spec.priority, not job.debug), {})
        insort(authors.setdefault(job.spec.author, []), (job.submitted, job.spec.id))
        self.count += 1

    def remove(self, job: JobSight) -> None:
        """Take a job out; it is in the lane exactly as given."""
        rank = (-job.spec.priority, not job.debug)
        authors = self._ranks[rank]
        aged = authors[job.spec.author]
        del aged[bisect_left(aged, (job.submitted, job.spec.id))]
        self.count -= 1
        if not aged:
            del authors[job.spec.author]
            if not authors:
                del self._ranks[rank]

    def ordered(self, usage: Mapping[str, float]) -> Iterator[str]:
        """Yield job ids in order of service, given what each author has had."""
        for rank in sorted(self._ranks):
            authors = self._ranks[rank]
            by_usage = sorted((usage.get(author, 0.0), author) for author in authors)
            for _, level in groupby(by_usage, key=lambda pair: pair[0]):
                lists = [authors[author] for _, author in level]
                yield from (job for _, job in (lists[0] if len(lists) == 1 else merge(*lists)))

    def of_author(self, author: str) -> Iterator[str]:
        """Yield the jobs of one author, in order of service."""
        for rank in sorted(self._ranks):
            yield from (job for _, job in self._ranks[rank].get(author, ()))

    def before(self, job: JobSight, usage: Mapping[str, float]) -> int:
        """Return how many jobs of the lane go before one of its jobs."""
        own = (-job.spec.priority, not job.debug)
        had = usage.get(job.spec.author, 0.0)
        me = (job.submitted, job.spec.id)
        count = 0
        for rank, authors in self._ranks.items():
            if rank < own:
                count += sum(map(len, authors.values()))
            elif rank == own:
                for author, aged in authors.items():
                    other = usage.get(author, 0.0)
                    if other < had:
                        count += len(aged)
                    elif other == had:
                        count += bisect_left(aged, me)
        return count


class Board:
    """Live jobs by id, by account and by node."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobSight] = {}
        self.allocated: dict[str, Lane] = {}
        self.spare: dict[str, Lane] = {}
        self.running: dict[str, JobSight] = {}
        """Jobs with devices: promised, in use, or being left."""
        self.unseen: dict[str, JobSight] = {}
        """Jobs that are stored and that the scheduler has not seen yet."""
        self.waiting = 0
        """How many jobs wait."""
        self.again = 0
        """How many of them were preempted before."""

    def put(self, job: JobSight) -> None:
        """Add a job, or bring it up to date; a job that is over leaves the board."""
        self.drop(job.spec.id)
        if is_over(job):
            return
        self.jobs[job.spec.id] = job
        if is_waiting(job):
            self._lanes(job).setdefault(job.spec.account, Lane()).add(job)
            self.waiting += 1
            self.again += job.preemptions > 0
            if job.phase is None:
                self.unseen[job.spec.id] = job
        else:
            self.running[job.spec.id] = job

    def drop(self, job: str) -> None:
        """Take a job off the board, if it is there."""
        old = self.jobs.pop(job, None)
        if old is None:
            return
        if not is_waiting(old):
            del self.running[job]
            return
        self.waiting -= 1
        self.again -= old.preemptions > 0
        self.unseen.pop(job, None)
        lanes = self._lanes(old)
        lane = lanes[old.spec.account]
        lane.remove(old)
        if not lane.count:
            del lanes[old.spec.account]

    def lanes(self, view: View) -> Iterator[tuple[str, Lane]]:
        """Yield accounts with what waits there in order of service: allocated work, then unallocated."""
        yield from ((account, self.allocated[account]) for account in self._ranked(view))
        yield from ((account, self.spare[account]) for account in self._spare(view))

    def order(self, view: View) -> Iterator[JobSight]:
        """Yield waiting jobs in order of service."""
        for account, lane in self.lanes(view):
            usage = view.authors.get(account, {})
            yield from (self.jobs[job] for job in lane.ordered(usage))

    def in_account(self, job: JobSight, view: View) -> Iterator[JobSight]:
        """Yield the waiting jobs of a waiting job's account and kind, in order."""
        account = job.spec.account
        lane = self._lanes(job)[account]
        return (self.jobs[each] for each in lane.ordered(view.authors.get(account, {})))

    def head(self, account: str, view: View, *, allocated: bool) -> JobSight | None:
        """Return the first waiting job of an account; None where none waits."""
        lane = (self.allocated if allocated else self.spare).get(account)
        return None if lane is None else self.jobs[next(lane.ordered(view.authors.get(account, {})))]

    def before(self, job: JobSight, view: View) -> tuple[int, int]:
        """Return how many waiting jobs go before a waiting job: in its account, and in all."""
        lanes, account = self._lanes(job), job.spec.account
        own = lanes[account].before(job, view.authors.get(account, {}))
        others = 0 if job.spec.allocated else sum(lane.count for lane in self.allocated.values())
        others += sum(lanes[other].count for other in self.accounts_ahead(job, view))
        return own, own + others

    def accounts_ahead(self, job: JobSight, view: View) -> list[str]:
        """Return the accounts with waiting jobs of the same kind that rank before a waiting job's."""
        ranked = self._ranked(view) if job.spec.allocated else self._spare(view)
        return ranked[: ranked.index(job.spec.account)]

    def _lanes(self, job: JobSight) -> dict[str, Lane]:
        return self.allocated if job.spec.allocated else self.spare

    def _ranked(self, view: View) -> list[str]:
        """Return accounts with allocated jobs by rank; those that the last pass did not see come last."""
        rank = view.ranks
        return sorted(self.allocated, key=lambda account: (rank.get(account, len(rank)), account))

    def _spare(self, view: View) -> list[str]:
        """Return accounts with unallocated jobs: who had least for its share first, level by level."""
        order, last = view.spare_order, (float("inf"),)
        return sorted(self.spare, key=lambda account: (order.get(account, last), account))
