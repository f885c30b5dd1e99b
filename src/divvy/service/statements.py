"""Statements from the store: which rows matter to a period, what of them was lost, and what is not known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from divvy.control.facts import Adjustment, Capacity, Demand, Epoch, Occupancy, Stint
from divvy.control.hourly import mean_weight
from divvy.control.statement import Statement, make_statement
from divvy.errors import InputError
from divvy.fleet.account import AccountTree
from divvy.fleet.budget import read_budget
from divvy.fleet.job import StopCause
from divvy.fleet.ledger import OCCUPANCY
from divvy.service.ports import BudgetRecord, LedgerLine, Reader
from divvy.units import DAY, HOUR, gpu_hours

LONGEST: Final = 400 * DAY
MOST_HOURS: Final = 100_000
_LOSING: Final = (StopCause.PREEMPTED, StopCause.DRAINED, StopCause.NODE_LOST)


class Statements:
    """Makes statements; budget versions are compiled once.

    Args:
        reader: The store.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._trees: dict[int, AccountTree] = {}

    def make(self, start: int, end: int, now: int, *, listed: bool = False) -> tuple[Statement, list[str]]:
        """Return the statement of a period (ms) and what to know about it.

        What has not happened yet is not in it. ``listed``: with the numbers of all ledger entries per hour.
        """
        end = max(min(end, now), start)
        stints = {stint.job: stint for stint in self._reader.stints(start, end)}
        bare = self._reader.unprotected(start, end)
        ledger = self._reader.ledger(since=start, until=end)
        steps = self._reader.capacity(start, end)
        made = make_statement(
            start,
            end,
            self._epochs(end),
            [Capacity(step.at, step.gpus, step.models) for step in steps],
            [*_demands(stints.values(), end), *_forgotten(ledger, stints)],
            [*_finished(ledger, stints, bare), *_open(stints.values(), ledger, end)],
            [
                Adjustment(line.account, line.started, line.charge, _cause(line), line.id)
                for line in ledger
                if line.cause != OCCUPANCY
            ],
            mean_weight(((step.at, step.gpus, step.rate) for step in steps), start, end),
            listed=listed,
        )
        return made, _notes(made, stints)

    def _epochs(self, end: int) -> list[Epoch]:
        versions = sorted(self._reader.budgets(), key=lambda version: version.version)
        inside = [version for version in versions if version.at < end] or versions[:1]
        return [Epoch(version.at, self._tree(version)) for version in inside]

    def _tree(self, record: BudgetRecord) -> AccountTree:
        tree = self._trees.get(record.version)
        if tree is None:
            tree = self._trees[record.version] = read_budget(record.document).tree
        return tree


def check_period(start: int, end: int, *, hours: bool, accounts: int) -> None:
    """Refuse a period that makes no sense or an answer without bound.

    Raises:
        InputError: Saying what would be accepted.
    """
    if end <= start:
        raise InputError.one(
            "period-empty", "the period ends before it begins", path="to", allowed="after from"
        )
    if end - start > LONGEST:
        raise InputError.one(
            "period-long",
            f"{(end - start) // DAY} days",
            path="from",
            allowed=f"at most {LONGEST // DAY} days",
        )
    rows = ((end - start) // HOUR + 1) * accounts
    if hours and rows > MOST_HOURS:
        raise InputError.one(
            "period-long",
            f"{rows} rows of hours",
            path="hours",
            allowed=f"at most {MOST_HOURS} rows",
            fix="ask for a shorter period, for one account, or without the hours",
        )


def _cause(line: LedgerLine) -> str:
    """Return why there is a charge besides occupancy, and for which job."""
    return f"{line.cause} of {line.job}" if line.job else line.cause


def _demands(stints: Iterable[Stint], end: int) -> Iterable[Demand]:
    for stint in stints:
        if stint.min_runtime and not stint.refused:
            until = end if stint.stopped is None else stint.stopped
            yield Demand(stint.account, stint.submitted, until, stint.gpus, stint.job, stint.model)


def _forgotten(ledger: Iterable[LedgerLine], stints: dict[str, Stint]) -> Iterable[Demand]:
    """Yield what is still known of the demand of jobs that the store has removed: that they ran."""
    for line in ledger:
        if line.cause == OCCUPANCY and line.allocated and line.job not in stints:
            yield Demand(line.account, line.started, line.ended, line.gpus, line.job)


def _finished(
    ledger: Iterable[LedgerLine], stints: dict[str, Stint], bare: set[tuple[str, int]]
) -> Iterable[Occupancy]:
    for line in ledger:
        if line.cause != OCCUPANCY:
            continue
        stint = stints.get(line.job)
        declared = stint.min_runtime if stint is not None else 0
        yield Occupancy(
            line.account,
            line.started,
            line.ended,
            line.gpus,
            line.weight,
            line.allocated,
            line.ended - line.started if stint is not None and _was_lost(stint, line.attempt) else 0,
            declared,
            protected=0 if (line.job, line.attempt) in bare else declared,
            entry=line.id,
            job=line.job,
            attempt=line.attempt,
        )


def _cut_short(stint: Stint, attempt: int) -> bool:
    """Return whether a run that is over ended before its job's work did."""
    return attempt < stint.attempt or stint.stop_cause in _LOSING


def _was_lost(stint: Stint, attempt: int) -> bool:
    """Return whether the work of a run is known to be gone: it was cut short and nothing resumes it."""
    return not stint.resumable and _cut_short(stint, attempt)


def _open(stints: Iterable[Stint], ledger: Iterable[LedgerLine], end: int) -> Iterable[Occupancy]:
    """Yield the runs that are not over, as far as they have come; what they declared is judged at the end."""
    closed = {(line.job, line.attempt) for line in ledger}
    for stint in stints:
        if stint.rate and stint.started is not None and (stint.job, stint.attempt) not in closed:
            yield Occupancy(
                stint.account,
                stint.started,
                end,
                stint.gpus,
                stint.rate,
                stint.min_runtime > 0,
                lost=0,
                declared=0,
                protected=max(stint.protected_until - stint.started, 0),
                job=stint.job,
                attempt=stint.attempt,
            )


def _notes(statement: Statement, stints: dict[str, Stint]) -> list[str]:
    """Return what the figures cannot say: work lost since a checkpoint that only the job knows of."""
    running = kept = cut = 0
    for run in statement.sources.occupancies:
        stint = stints.get(run.job)
        if not run.allocated or stint is None:
            continue
        inside = min(run.end, statement.end) - max(run.start, statement.start)
        if not run.entry:
            running += inside * run.gpus
        elif stint.resumable and _cut_short(stint, run.attempt):
            kept += inside * run.gpus
            cut += 1
    found: list[str] = []
    if cut:
        runs = "run" if cut == 1 else "runs"
        found.append(
            f"{cut} resumable {runs} with {gpu_hours(kept):.1f} GPU-hours cut short; what was done since the "
            "last checkpoint is lost, only the job knows how much, and it counts as delivered here"
        )
    if running:
        found.append(
            f"runs that are not over have {gpu_hours(running):.1f} GPU-hours in this period; whether "
            "any of it will be lost is not known yet, and it counts as delivered"
        )
    return found
