"""Tables: sacct --parsable2 and its kin, row by row, in one pass over the lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Final

from divvy.adapters.slurm import hostlist
from divvy.adapters.slurm.accounting.clock import NO_TIME, Clock, duration, limit, minutes
from divvy.adapters.slurm.accounting.collect import Collector
from divvy.adapters.slurm.accounting.layout import Layout, column_names, is_aside
from divvy.adapters.slurm.accounting.notes import RowError
from divvy.adapters.slurm.accounting.rows import JOB_ID, Raw, Resources, finish, gpus_held, tasks_of
from divvy.adapters.slurm.accounting.states import FATES, state_of
from divvy.adapters.slurm.tres import Gpus, Request
from divvy.control.audit.jobs import UNKNOWN, Fate
from divvy.units import SECOND

#: A row whose name or command runs over more lines or pieces than this is given up.
MOST_LINES: Final = 2_000
_MOST_PIECES: Final = 300
_UTIL: Final = re.compile(r"gres/gpuutil(?::[^=,]+)?=(\d+(?:\.\d+)?)")
_HUNDRED: Final = 100.0

_WHO: Final = ("cluster", "partition", "qos", "account", "user", "uid", "jobname", "submitline")
_WHEN: Final = ("submit", "eligible", "start", "end", "elapsed", "elapsedraw", "suspended")
_WHAT: Final = ("state", "alloctres", "timelimit", "timelimitraw", "nodelist")
_REQUEST: Final = (
    "reqtres",
    "allocgres",
    "reqgres",
    "trespernode",
    "tresperjob",
    "trespertask",
    "nnodes",
    "ntasks",
)
#: What a table should tell: a warning where none of the columns is there.
_WANTED: Final = (
    (
        "no-gpu-column",
        "no column of the table tells GPUs (AllocTRES, ReqTRES, SubmitLine)",
        (
            "alloctres",
            "reqtres",
            "allocgres",
            "reqgres",
            "trespernode",
            "tresperjob",
            "trespertask",
            "submitline",
        ),
    ),
    ("no-time-column", "no column of the table tells when jobs ran (Start, End)", ("start", "end")),
)
_USED: Final = ("tresusageintot", "tresusageinave", "gpuutil")
_COLUMNS: Final = ("jobid", "jobidraw", *_WHO, *_WHEN, *_WHAT, *_REQUEST, *_USED)


class TableReader:
    """Reads the lines of one table.

    Args:
        layout: Its columns; a header further down changes them.
        file: Which file.
        clock: Reads times.
        into: Where rows go.
    """

    def __init__(self, layout: Layout, file: int, clock: Clock, into: Collector) -> None:
        self._file, self._clock, self._into = file, clock, into
        self._pending: list[str] = []
        self._began = 0
        self._why_pending: RowError | None = None
        self._after_row = False
        self._use_layout(layout)

    def _use_layout(self, layout: Layout) -> None:
        self._layout = layout
        self._row = RowReader(layout, self._file, self._clock, self._into)

    def read(self, lines: Iterable[tuple[int, str]]) -> None:
        """Read all lines."""
        separator, width = self._layout.separator, len(self._layout.names)
        for number, line in lines:
            if self._pending and self._is_next(line):
                self._give_up()
            if not self._pending:
                pieces = line.split(separator)
                if len(pieces) == width + 1 and self._layout.trailing and not pieces[-1]:
                    pieces.pop()
                if len(pieces) == width:
                    try:
                        self._row.read(pieces, number)
                    except RowError as fault:
                        self._doubtful(number, line, fault)
                        separator, width = self._layout.separator, len(self._layout.names)
                    else:
                        self._after_row = True
                    continue
            self._odd(number, line)
            separator, width = self._layout.separator, len(self._layout.names)
        self._give_up()

    def _is_next(self, line: str) -> bool:
        """Return whether a line begins another row; where rows begin with free text, none can be told to."""
        layout = self._layout
        return not layout.first_absorbs and (layout.begins(line) or layout.is_row_but_for_its_id(line))

    def _doubtful(self, number: int, line: str, fault: RowError) -> None:
        """Deal with a line of the right width that is no sound row: a header, or a faulty row."""
        pieces = line.split(self._layout.separator)
        if is_aside(line) or self._is_header(pieces):
            return
        if self._layout.fits(pieces[: len(self._layout.names)]) or not self._layout.begins(line):
            self._fault(number, fault.code, str(fault))
        else:
            self._odd(number, line, fault)

    def _is_header(self, pieces: Sequence[str]) -> bool:
        names = column_names(pieces)
        if names is None or JOB_ID.fullmatch(pieces[0]):
            return False
        self._use_layout(Layout(names, self._layout.separator))
        return True

    def _odd(self, number: int, line: str, fault: RowError | None = None) -> None:
        """Deal with a line that is not a row by itself."""
        begins = self._layout.begins(line)
        if self._pending:
            self._pending.append(line)
        elif is_aside(line) or self._is_header(line.split(self._layout.separator)):
            return
        elif begins or self._layout.first_absorbs:
            self._began, self._pending, self._why_pending = number, [line], fault
        elif self._after_row and self._layout.last_absorbs:
            return  # more lines of a text that stands in the last column
        else:
            self._fault(number, "row-unreadable", self._why(line))
            return
        self._complete()

    def _complete(self) -> None:
        """Read the row that has been gathered, if it is whole."""
        if len(self._pending) > 1 and self._layout.separator not in self._pending[-1]:
            if len(self._pending) > MOST_LINES:
                self._give_up()
            return  # the columns behind a free text stand in a line with separators
        text = "\n".join(self._pending)
        pieces = text.count(self._layout.separator) + 1
        if pieces < len(self._layout.names) and len(self._pending) <= MOST_LINES:
            return
        if pieces > len(self._layout.names) + _MOST_PIECES or len(self._pending) > MOST_LINES:
            self._give_up()
            return
        laid = self._layout.lay_out(text)
        if laid is not None and self._layout.first_absorbs and len(self._pending) > 1:
            words = "several lines were taken for one row, which begins with free text"
            self._into.notes.remark(self._began, self._file, "lines-joined", words)
        if laid is None:
            return  # a name with separators and newlines may go on in the next line
        self._pending = []
        try:
            self._row.read(laid, self._began)
            self._after_row = True
        except RowError as other:
            self._fault(self._began, other.code, str(other))

    def _give_up(self) -> None:
        """Report the row that was gathered and is not whole."""
        if not self._pending:
            return
        lines, fault = self._pending, self._why_pending
        self._pending = []
        if fault is not None and not "".join(lines[1:]).strip():
            self._fault(self._began, fault.code, str(fault))
            return
        more = f" (lines {self._began} to {self._began + len(lines) - 1})" if len(lines) > 1 else ""
        self._fault(self._began, "row-unreadable", self._why("\n".join(lines)) + more)

    def _why(self, text: str) -> str:
        pieces = text.count(self._layout.separator) + 1
        return f"{pieces} columns do not make a row of {len(self._layout.names)}: {text[:80]!r}"

    def _fault(self, number: int, code: str, text: str) -> None:
        self._after_row = False
        self._into.skip(number, self._file, code, text)


class RowReader:
    """Reads the pieces of one row after another.

    Args:
        layout: The columns.
        file: Which file.
        clock: Reads times.
        into: Where rows go.
    """

    def __init__(self, layout: Layout, file: int, clock: Clock, into: Collector) -> None:
        self._file, self._clock, self._into = file, clock, into
        width = len(layout.names)
        at = {name: layout.index.get(name, width) for name in _COLUMNS}
        self._job_at = at["jobid"] if at["jobid"] < width else at["jobidraw"]
        self._missing = "JobID" if self._job_at == width else "State" if at["state"] == width else ""
        self._who, self._when, self._what, self._request = (
            itemgetter(*(at[name] for name in names)) for names in (_WHO, _WHEN, _WHAT, _REQUEST)
        )
        self._timed = any(at[name] < width for name in ("submit", "start", "end"))
        self._has_nodes, self._has_alloc = at["nodelist"] < width, at["alloctres"] < width
        self._uses = [(at[name], read, name) for name, read in _USES if at[name] < width]
        self._alloc_at, self._tasks_at = at["alloctres"], at["ntasks"]
        self._lacks = tuple(
            (code, text)
            for code, text, names in _WANTED
            if width > 1 and not any(at[name] < width for name in names)
        )
        self._line = 0
        self._held: dict[str, Gpus] = {}

    def read(self, pieces: list[str], line: int) -> None:
        """Read one row.

        Raises:
            RowError: If it cannot be understood.
        """
        if self._missing:
            raise RowError("column-missing", f"the table has no column {self._missing}")
        pieces.append("")  # what every missing column holds
        job = pieces[self._job_at]
        tasks = 1
        if not job.replace("_", "", 1).isdigit() or job[0] == "_" or job[-1] == "_":
            found = JOB_ID.fullmatch(job)
            if found is None:
                raise RowError("job-id", f"{job[:40]!r} is not the id of a job")
            if found["step"] is not None:
                self._into.step(job[: found.start("step") - 1], self._use(pieces))
                return
            if found["tasks"]:
                tasks = tasks_of(found["tasks"])
        self._line = line
        try:
            row = finish(self._raw(pieces, line, job, tasks), self._remark)
        except RowError:
            raise
        except ValueError as error:
            word = "state-unknown" if "state of Slurm" in str(error) else "value-unreadable"
            raise RowError(word, f"job {job}: {error}") from error
        for code, text in self._lacks:
            self._remark(code, text)
        self._into.job(row)

    def _remark(self, code: str, text: str) -> None:
        self._into.notes.remark(self._line, self._file, code, text)

    def _raw(self, pieces: list[str], line: int, job: str, tasks: int) -> Raw:
        cluster, partition, qos, account, user, uid, name, submit_line = self._who(pieces)
        submit, eligible, begin, stop, spent, spent_raw, suspended = self._when(pieces)
        word, alloc, bound, bound_raw, nodes = self._what(pieces)
        moment = self._clock.read
        state = state_of(word)
        start, end, submitted = moment(begin), moment(stop), moment(submit)
        elapsed = int(spent_raw) * SECOND if spent_raw.isdigit() else duration(spent)
        if start == UNKNOWN and end != UNKNOWN and elapsed > 0 and FATES[state] >= Fate.ENDED:
            start = end - elapsed
        return Raw(
            line,
            self._file,
            job,
            state,
            tasks,
            cluster,
            account,
            user or uid,
            qos,
            partition,
            name,
            self._held.get(alloc) or self._gpus(alloc, pieces),
            submitted,
            submitted if eligible == submit else moment(eligible),
            start,
            end,
            elapsed,
            minutes(int(bound_raw)) if bound_raw.isdigit() else limit(bound),
            self._timed,
            (start in (end, UNKNOWN)) and self._never(nodes, alloc, start, end, elapsed),
            submit_line,
            bool(suspended) and suspended not in NO_TIME and suspended != "00:00:00",
            self._use(pieces) if self._uses else -1.0,
        )

    def _never(self, nodes: str, alloc: str, start: int, end: int, elapsed: int) -> bool:
        """Return whether a job that is over never ran: older Slurm writes its cancellation as its start."""
        if self._has_nodes and nodes in hostlist.NOBODY:
            return elapsed <= 0 or start == UNKNOWN
        return self._has_alloc and not alloc and elapsed <= 0 and start == end

    def _gpus(self, alloc: str, pieces: list[str]) -> Gpus:
        """Return the GPUs of a row; what is allocated is remembered, for it is so whatever was asked for."""
        req, alloc_gres, req_gres, per_node, per_job, per_task, nodes, tasks = self._request(pieces)
        request = Request()
        if per_node or per_job or per_task:
            request = Request(per_job, per_node, "", per_task, _number(nodes), 1, _number(tasks))
        if per_node == "N/A" and not (alloc or req or per_job):
            self._remark(
                "gpus-not-told", "squeue's %b is N/A for jobs that asked by --gpus; ask for tres-alloc"
            )
        found = gpus_held(Resources(alloc, req, alloc_gres, req_gres, request))
        if found.total and alloc not in hostlist.NOBODY and "gres/gpu" in alloc:
            self._held[alloc] = found
        return found

    def _use(self, pieces: list[str]) -> float:
        """Return the mean use of the GPUs that a row tells of, 0 to 1; negative where it does not."""
        for at, read, name in self._uses:
            text = pieces[at]
            use = read(text) if text else -1.0
            if use < 0:
                continue
            if name == "tresusageintot":
                use /= max(_gpus_or_one(pieces[self._alloc_at]), _number(pieces[self._tasks_at]))
            return min(use / _HUNDRED, 1.0)
        return -1.0


def _number(text: str) -> int:
    """Return the first number of ``4`` or ``20-20``; 1 where there is none."""
    found = re.match(r"\d+", text)
    return max(int(found.group()), 1) if found else 1


def _gpus_or_one(text: str) -> int:
    try:
        return max(gpus_held(Resources(text)).total, 1)
    except RowError:
        return 1


def _util(text: str) -> float:
    found = _UTIL.search(text)
    return float(found.group(1)) if found else -1.0


def _percent(text: str) -> float:
    bare = text.strip().removesuffix("%")
    try:
        return float(bare) if bare else -1.0
    except ValueError:
        return -1.0


_USES: Final[tuple[tuple[str, Callable[[str], float]], ...]] = (
    ("tresusageintot", _util),
    ("tresusageinave", _util),
    ("gpuutil", _percent),
)
