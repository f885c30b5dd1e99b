"""The audit of an engine: its accounting against the shares of a budget, for every account and hour.

Owed and delivered are those of a statement (`divvy.control.statement`), of jobs that nobody declared a
minimum runtime for: all of their time is allocated. Beside them stands what was delivered beyond what was
owed (``unfunded``): no share pays for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from divvy.control.audit.attribute import Attribution, By, attribute
from divvy.control.audit.figures import Limits, Signs, Squatting, Waits, limits, signs, squatting, waits
from divvy.control.audit.jobs import UNKNOWN, Accounting, Fate, Jobs, Warned
from divvy.control.audit.runs import Flags, Ints, Runs, arrange, as_of
from divvy.control.facts import Capacity, Epoch
from divvy.control.hourly import Blocks, Hours
from divvy.control.statement import Row, Statement, state_blocks
from divvy.errors import InputError
from divvy.fleet.account import AccountTree, build_tree
from divvy.units import DAY

#: A longer period is a typing error, or a file with one in it.
LONGEST: Final = 40 * 366 * DAY
ESTIMATED: Final = "estimated"
FROM_NODES: Final = "nodes"


@dataclass(frozen=True, slots=True)
class Supply:
    """The GPUs that there were.

    Attributes:
        gpus: Capacity over the whole period.
        source: ``nodes`` or ``estimated``.
        text: How it was found, for people.
        nodes: Nodes with GPUs in the files.
        out_of_service: GPUs of nodes that were down or drained when the files were written.
        peak: The most GPUs ever held at once in the period.
    """

    gpus: int
    source: str
    text: str
    nodes: int
    out_of_service: int
    peak: int


@dataclass(frozen=True, slots=True)
class AccountAudit:
    """One account of the tree over the period; GPU-ms.

    Attributes:
        row: Its statement.
        held: All time that its jobs held GPUs.
        unfunded: What its leaves got beyond what they were owed, per hour.
        preempted: Time of runs that ended preempted.
        lost: Time of runs whose work is known to be lost.
        waits: By size.
        limits: Declared limits against used time.
        squatting: Time held rather than used.
        wanting: Which jobs wanted its GPUs in the period.
        runs: Which of them held GPUs.
        preempted_runs: Which runs ended preempted.
        lost_runs: Which runs lost their work.
    """

    row: Row
    held: int
    unfunded: Hours
    preempted: int
    lost: int
    waits: tuple[Waits, ...]
    limits: Limits
    squatting: Squatting
    wanting: Ints
    runs: Ints
    preempted_runs: Ints
    lost_runs: Ints


@dataclass(frozen=True, slots=True)
class Audit:
    """Everything that the report says.

    Attributes:
        read: What was read.
        by: What names were compared with.
        attribution: Who pays.
        statement: Owed and delivered.
        supply: Capacity.
        runs: Jobs with GPUs.
        accounts: In the order of the tree.
        held: GPU-ms of all runs in the period.
        signs: What can be seen of each run.
        warnings: Of reading, then of the audit itself.
    """

    read: Accounting
    by: By
    attribution: Attribution
    statement: Statement
    supply: Supply
    runs: Runs
    accounts: tuple[AccountAudit, ...]
    held: int
    signs: Signs
    warnings: tuple[Warned, ...]


@dataclass(frozen=True, slots=True)
class Period:
    """What is asked for, ms; UNKNOWN for all that the files know."""

    start: int = UNKNOWN
    end: int = UNKNOWN


def audit(read: Accounting, tree: AccountTree | None, by: By, asked: Period) -> Audit:
    """Return the audit of what was read.

    Raises:
        InputError: If the budget cannot be applied or the period is none.
    """
    names = read.jobs.words[by.value].texts
    with_gpus = _names_with_gpus(read.jobs, by)
    attribution = attribute([names[number] for number in with_gpus], tree, by)
    payer = np.zeros(len(names), dtype=np.int64)
    for number in with_gpus:
        payer[number] = attribution.row[names[number]]
    runs = arrange(read.jobs, payer, by.value)
    start, end = _period(runs, read.jobs, asked)
    supply = _supply(read, runs, start, end)
    seen = signs(runs, start, end)
    blocks = {
        "demand": _demands(runs, attribution.tree),
        "delivered": _held(runs, attribution.tree, ~seen.lost),
        "lost": _held(runs, attribution.tree, seen.lost),
    }
    epochs = _epochs(attribution.tree, start, end)
    statement = state_blocks(start, end, epochs, [Capacity(start, supply.gpus)], blocks)
    unfunded = _unfunded(statement, epochs[-1].tree)
    accounts = tuple(
        _account(runs, row, unfunded[row.account], epochs[-1].tree, seen, statement) for row in statement.rows
    )
    warnings = (*read.warnings, *_own_warnings(read, runs, supply))
    return Audit(
        read, by, attribution, statement, supply, runs, accounts, int(seen.held.sum()), seen, warnings
    )


def _names_with_gpus(jobs: Jobs, by: By) -> list[int]:
    """Return the numbers of the names that hold or want GPUs; others need nobody to pay."""
    gpus = np.asarray(jobs.numbers["gpus"], dtype=np.int64) > 0
    ids = np.asarray(jobs.ids[by.value], dtype=np.int64)
    _, first = np.unique(ids[gpus], return_index=True)
    return [int(ids[gpus][place]) for place in sorted(first)]


def _period(runs: Runs, jobs: Jobs, asked: Period) -> tuple[int, int]:
    """Return begin and end: what is asked for, else from the first submission to the last known instant."""
    known = runs.number["submit"], runs.number["start"]
    begins = [int(column[column != UNKNOWN].min()) for column in known if (column != UNKNOWN).any()]
    last = max(runs.as_of, as_of(jobs), 0)
    end = last if asked.end == UNKNOWN else asked.end
    start = min(begins, default=end) if asked.start == UNKNOWN else asked.start
    if start > end:
        raise InputError.one(
            "period-empty",
            "the period ends before it begins",
            path="--from, --to",
            allowed="a begin before the end; the files end with their last known instant",
        )
    if end - start > LONGEST:
        raise InputError.one(
            "period-long",
            f"the period has {(end - start) // DAY:,} days; one time in the files may be wrong",
            path="--from, --to",
            allowed=f"at most {LONGEST // DAY:,} days",
            fix="name a begin and an end",
        )
    return start, end


def _supply(read: Accounting, runs: Runs, start: int, end: int) -> Supply:
    """Return the capacity: of the nodes in the files, else the most GPUs ever held at once."""
    peak = _peak(runs, start, end)
    with_gpus = [node for node in read.nodes if node.gpus]
    total = sum(node.gpus for node in with_gpus)
    serving = sum(node.gpus for node in with_gpus if node.in_service)
    if not total:
        text = "the most GPUs held at once in the period: there were at least so many; no file has nodes"
        return Supply(peak, ESTIMATED, text, 0, 0, peak)
    gpus = max(serving, min(peak, total))
    text = f"GPUs of the {len(with_gpus)} nodes in the files, as they were when those were written"
    if serving < total:
        text += f"; {total - serving} GPUs of nodes that were out of service then"
        text += " count, because jobs held them" if gpus > serving else " do not count"
    return Supply(gpus, FROM_NODES, text, len(with_gpus), total - serving, peak)


def _peak(runs: Runs, start: int, end: int) -> int:
    """Return the most GPUs held at once within a period."""
    some = runs.started & (runs.stop > start) & (runs.number["start"] < end)
    some &= runs.stop > runs.number["start"]
    if not some.any():
        return 0
    gpus = runs.number["gpus"][some]
    at = np.concatenate([np.maximum(runs.number["start"][some], start), runs.stop[some]])
    step = np.concatenate([gpus, -gpus])
    order = np.lexsort((step, at))  # what ends at an instant makes room for what begins then
    return int(np.cumsum(step[order]).max())


def _demands(runs: Runs, tree: AccountTree) -> Iterator[Blocks]:
    """Yield what each account had queued or running."""
    begin = runs.begin
    wanted = runs.number["gpus"] * np.maximum(runs.number["tasks"], 1)
    for row in np.unique(runs.payer).tolist():
        part = runs.of(row, row + 1)
        some = begin[part] != UNKNOWN
        yield Blocks(tree.paths[row], begin[part][some], runs.gone[part][some], wanted[part][some])


def _held(runs: Runs, tree: AccountTree, chosen: Flags) -> Iterator[Blocks]:
    """Yield what each account held, of some runs."""
    for row in np.unique(runs.payer).tolist():
        part = runs.of(row, row + 1)
        some = runs.started[part] & chosen[part]
        columns = (runs.number["start"], runs.stop, runs.number["gpus"])
        yield Blocks(tree.paths[row], *(column[part][some] for column in columns))


def _epochs(tree: AccountTree, start: int, end: int) -> list[Epoch]:
    """Return the trees that held in a period: shares may change at dates."""
    dates = sorted({at for spec in tree.specs for at, _ in spec.later if start < at < end})
    return [Epoch(at, build_tree(spec.from_(at) for spec in tree.specs)) for at in (start, *dates)]


def _unfunded(statement: Statement, tree: AccountTree) -> dict[str, Hours]:
    """Return what each account got beyond what it was owed, hour by hour, leaf by leaf."""
    found = {row.account: np.maximum(row.delivered - row.owed, 0) for row in statement.rows if row.leaf}
    for path in reversed(tree.paths[1:]):
        children = [found[tree.paths[child]] for child in tree.children[tree.row[path]]]
        if children:
            found[path] = np.sum(children, axis=0)
    return found


def _account(
    runs: Runs, row: Row, unfunded: Hours, tree: AccountTree, seen: Signs, statement: Statement
) -> AccountAudit:
    """Return the figures of one account with all below it: in depth-first order they are one stretch."""
    first = tree.row[row.account]
    last = first + 1
    while last < len(tree) and first in tree.lineage[last]:
        last += 1
    part = runs.of(first, last)
    within = seen.held[part]
    preempted = (runs.number["fate"][part] == Fate.PREEMPTED) & (within > 0)
    lost = seen.lost[part] & (within > 0)
    begin, gone = runs.begin[part], runs.gone[part]
    wanting = (begin != UNKNOWN) & (gone > np.maximum(begin, statement.start)) & (begin < statement.end)
    return AccountAudit(
        row,
        int(within.sum()),
        unfunded,
        int(within[preempted].sum()),
        int(within[lost].sum()),
        waits(runs, part, statement.start, statement.end),
        limits(runs, part, seen.held),
        squatting(runs, part, seen),
        np.flatnonzero(wanting) + part.start,
        np.flatnonzero(within > 0) + part.start,
        np.flatnonzero(preempted) + part.start,
        np.flatnonzero(lost) + part.start,
    )


def _own_warnings(read: Accounting, runs: Runs, supply: Supply) -> Iterator[Warned]:
    """Yield what the figures themselves make doubtful."""
    for place in np.flatnonzero(runs.runaway).tolist():
        line, file = int(runs.number["line"][place]), int(runs.number["file"][place])
        text = "said to run more than a day after its time limit; taken to have ended at the limit"
        yield Warned(line, file, "runaway", text)
    if supply.source == FROM_NODES and supply.peak > supply.gpus:
        text = f"jobs held {supply.peak} GPUs at once, and the nodes in the files have {supply.gpus}"
        yield Warned(0, 0, "capacity-exceeded", text)
    if not read.tally.read:
        yield Warned(0, 0, "no-rows", "the files hold no row")
    if not len(runs.payer) and len(read.jobs):
        yield Warned(0, 0, "no-gpus", f"none of {len(read.jobs)} jobs held or asked for a GPU")
    if len(runs.payer) and not runs.started.any():
        yield Warned(0, 0, "no-runs", "no job with GPUs has started")
