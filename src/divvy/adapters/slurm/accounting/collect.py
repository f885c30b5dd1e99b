"""Where readers of all formats put what they find."""

from __future__ import annotations

from divvy.adapters.slurm.accounting.notes import Notes
from divvy.control.audit.jobs import Accounting, JobRow, Jobs, NodeRow, Tally
from divvy.control.audit.merge import merge


class Collector:
    """Rows of all files.

    Attributes:
        notes: Warnings so far.
        jobs: Runs so far.
    """

    def __init__(self) -> None:
        self.notes = Notes()
        self.jobs = Jobs()
        self._nodes: dict[str, NodeRow] = {}
        self._counts = dict.fromkeys(Tally._fields, 0)
        self._uses: dict[str, float] = {}
        self._measured = False

    def job(self, row: JobRow) -> None:
        """Take a run."""
        self._counts["jobs"] += 1
        self._measured = self._measured or row.use >= 0
        self.jobs.add(row)

    def step(self, job: str, use: float) -> None:
        """Take a part of a job, whose use of GPUs is its job's; the busiest part counts."""
        self._counts["steps"] += 1
        if use >= 0:
            self._uses[job] = max(use, self._uses.get(job, 0.0))

    def node(self, row: NodeRow) -> None:
        """Take a node; sinfo names it once for each partition."""
        known = self._nodes.get(row.name)
        if known is None:
            self._counts["nodes"] += 1
            self._nodes[row.name] = row
        else:
            self._counts["duplicates"] += 1
            if row.gpus > known.gpus:
                self._nodes[row.name] = row

    def skip(self, line: int, file: int, code: str, text: str) -> None:
        """Count a row that was not understood, and tell why."""
        self._counts["skipped"] += 1
        self.notes.skip(line, file, code, text)

    def finish(self, files: tuple[str, ...]) -> Accounting:
        """Return everything, each run once."""
        self.jobs.settle()
        if self._uses:
            self._measured = True
            texts = self.jobs.words["job"].texts
            for index, job in enumerate(self.jobs.ids["job"]):
                use = self._uses.get(texts[job])
                if use is not None:
                    self.jobs.use[index] = use
        jobs, duplicates, doubts = merge(self.jobs)
        for line, file, code, text in doubts:
            self.notes.remark(line, file, code, text)
        counts = dict(self._counts)
        counts["jobs"] -= duplicates
        counts["duplicates"] += duplicates
        counts["read"] = sum(counts.values())
        return Accounting(
            files, jobs, tuple(self._nodes.values()), Tally(**counts), self.notes.warnings(), self._measured
        )
