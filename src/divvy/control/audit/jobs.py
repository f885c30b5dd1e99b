"""The runs that an accounting file tells of, as columns: a million of them fit in a few hundred MB."""

from __future__ import annotations

from array import array
from enum import IntEnum
from typing import Final, NamedTuple

#: Stands for a time or duration that is not known, in columns.
UNKNOWN: Final = -1

#: Rows that are put into the columns at once: few enough to be still at hand in the processor's cache.
_CHUNK: Final = 2_000


class Fate(IntEnum):
    """How far a run has come, and how it ended."""

    WAITING = 0
    RUNNING = 1
    ENDED = 2
    PREEMPTED = 3
    REQUEUED = 4
    NODE_LOST = 5


class JobRow(NamedTuple):
    """One run of a job, or a job that has none yet, as one row of a file tells it.

    Attributes:
        line: Where it stands in its file, from 1.
        file: Which file, from 0.
        job: Id as people write it: ``17``, ``17_3``, ``17+1``, ``17_[4-9]``.
        cluster: Cluster; empty where the file does not say.
        account: Account in the engine.
        user: User.
        qos: Quality of service.
        partition: Partition.
        name: Name of the job.
        gpus: GPUs held, or asked for where it never started; of one task of an array.
        gpu_model: Type; empty where it is not known.
        shards: Parts of shared GPUs, which are not in ``gpus``.
        tasks: Tasks that a row of a waiting array stands for.
        submit: ms, UNKNOWN where the file does not say.
        eligible: ms, UNKNOWN likewise.
        start: ms, UNKNOWN where it never started.
        end: ms, UNKNOWN where it is not over.
        seen: Of a run that goes on: until when it was seen to run, ms, else UNKNOWN.
        limit: Declared limit, ms, UNKNOWN for none.
        state: In the engine's word.
        fate: What the state means.
        interactive: Whether it looks like a session of a person.
        use: Mean use of its GPUs, 0 to 1; negative where it is not known.
    """

    line: int
    file: int
    job: str
    cluster: str
    account: str
    user: str
    qos: str
    partition: str
    name: str
    gpus: int
    gpu_model: str
    shards: int
    tasks: int
    submit: int
    eligible: int
    start: int
    end: int
    seen: int
    limit: int
    state: str
    fate: Fate
    interactive: bool
    use: float


class Words(dict[str, int]):
    """Texts and their numbers: each text is kept once; one that is asked for the first time gets a number.

    Attributes:
        texts: By number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def __missing__(self, text: str) -> int:
        """Give a new text the next number."""
        number = self[text] = len(self.texts)
        self.texts.append(text)
        return number


#: Columns of whole numbers, and of numbers of texts.
NUMBERS: Final = (
    "line",
    "file",
    "gpus",
    "shards",
    "tasks",
    "submit",
    "eligible",
    "start",
    "end",
    "seen",
    "limit",
    "fate",
    "interactive",
)
TEXTS: Final = ("job", "cluster", "account", "user", "qos", "partition", "name", "gpu_model", "state")


class Jobs:
    """Rows as columns, appended to while files are read.

    Attributes:
        numbers: Column name to its values (NUMBERS).
        ids: Column name to the numbers of its texts (TEXTS).
        words: Column name to its texts.
        use: Mean use of GPUs.
    """

    __slots__ = ("_fresh", "ids", "numbers", "use", "words")

    def __init__(self) -> None:
        self.numbers: dict[str, array[int]] = {name: array("q") for name in NUMBERS}
        self.ids: dict[str, array[int]] = {name: array("q") for name in TEXTS}
        self.words: dict[str, Words] = {name: Words() for name in TEXTS}
        self.use: array[float] = array("d")
        self._fresh: list[JobRow] = []

    def __len__(self) -> int:
        """Return the number of rows that are in the columns."""
        return len(self.use)

    def add(self, row: JobRow) -> None:
        """Append a row; it is in the columns after `settle`."""
        self._fresh.append(row)
        if len(self._fresh) >= _CHUNK:
            self.settle()

    def settle(self) -> None:
        """Put the rows that were added into the columns, many at a time."""
        for name, values in zip(JobRow._fields, zip(*self._fresh, strict=True), strict=bool(self._fresh)):
            if name in self.numbers:
                self.numbers[name].extend(values)
            elif name in self.ids:
                self.ids[name].extend(map(self.words[name].__getitem__, values))
            else:
                self.use.extend(values)
        self._fresh.clear()

    def text(self, column: str, index: int) -> str:
        """Return a text of a row."""
        return self.words[column].texts[self.ids[column][index]]


class NodeRow(NamedTuple):
    """A node as a file tells it."""

    name: str
    gpus: int
    gpu_model: str
    in_service: bool


class Warned(NamedTuple):
    """One thing that a reader must know, and where it stands."""

    line: int
    file: int
    code: str
    text: str


class Tally(NamedTuple):
    """What became of every row of the files.

    Attributes:
        read: Rows: all but headers, comments and blank lines.
        jobs: Rows that tell of a run or a waiting job.
        steps: Rows of parts of jobs, whose job has a row of its own.
        nodes: Rows of nodes.
        duplicates: Rows that tell again what another row tells.
        skipped: Rows that could not be understood; each has a warning.
    """

    read: int = 0
    jobs: int = 0
    steps: int = 0
    nodes: int = 0
    duplicates: int = 0
    skipped: int = 0


class Accounting(NamedTuple):
    """All that was read.

    Attributes:
        files: Names of the files.
        jobs: Runs and waiting jobs, without duplicates.
        nodes: Nodes, each once.
        tally: What became of the rows.
        warnings: In the order of the files and lines.
        measured: Whether a column tells the use of GPUs.
    """

    files: tuple[str, ...]
    jobs: Jobs
    nodes: tuple[NodeRow, ...]
    tally: Tally
    warnings: tuple[Warned, ...]
    measured: bool
