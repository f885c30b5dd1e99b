"""Slurm through its commands: each with a time limit, none through a shell."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import structlog

from divvy.adapters.slurm import text
from divvy.adapters.slurm.record import PastRun, SlurmJob, View
from divvy.adapters.slurm.settings import SlurmSettings
from divvy.errors import UnavailableError

_log = structlog.get_logger("slurm")

#: What Slurm's commands say when it is slurmctld that does not answer, and not the request that is wrong.
_SILENT: Final = (
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection refused",
    "Zero Bytes were transmitted",
    "Slurm backup controller in standby mode",
    "authentication error",
    "Munge encode failed",
    "Transport endpoint is not connected",
    "Slurm temporarily unable to accept job",
)

_PATIENCE_SECONDS: Final = {"scancel": 4.0, "scontrol": 60.0}


class Shell:
    """Runs Slurm's commands.

    Args:
        settings: How this Slurm is reached.
    """

    def __init__(self, settings: SlurmSettings) -> None:
        self._timeout = settings.timeout / 1000
        self._environment = {**os.environ, **text.ENVIRONMENT}
        if settings.conf:
            self._environment["SLURM_CONF"] = settings.conf

    def ask(self, command: Sequence[str]) -> str:
        """Return what a command prints.

        Raises:
            UnavailableError: If it fails or takes too long.
        """
        done = self._run(command)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise UnavailableError.one(
                "slurm-command", f"{command[0]}: {said or f'exit code {done.returncode}'}"
            )
        return done.stdout.decode(errors="replace")

    def tell(self, command: Sequence[str]) -> str:
        """Run a command; return what went wrong.

        Raises:
            UnavailableError: If Slurm does not answer.
        """
        try:
            done = self._run(command, min(self._timeout, _PATIENCE_SECONDS[command[0]]))
        except UnavailableError as error:
            if command[0] == "scancel":
                return str(error)  # it repeats by itself, for minutes, what a job in transition does not take
            raise
        said = done.stderr.decode(errors="replace").strip()
        if any(words in said for words in _SILENT):
            raise UnavailableError.one("slurm-silent", f"{command[0]}: {said}")
        return said or f"exit code {done.returncode}" if done.returncode else ""

    def _run(
        self, command: Sequence[str], timeout_seconds: float = 0.0
    ) -> subprocess.CompletedProcess[bytes]:
        limit = timeout_seconds or self._timeout
        try:
            return subprocess.run(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise UnavailableError.one(
                "slurm-timeout", f"{command[0]} took longer than {limit:g} s"
            ) from error
        except OSError as error:
            raise UnavailableError.one(
                "slurm-missing",
                f"{command[0]} cannot be run ({error})",
                fix="install Slurm's client commands",
            ) from error


class CommandLine:
    """The controller behind Slurm's commands.

    Args:
        settings: How this Slurm is reached.
    """

    def __init__(self, settings: SlurmSettings) -> None:
        self.shell = Shell(settings)
        self._spreads: dict[tuple[str, int], tuple[tuple[str, int], ...]] = {}

    def read(self, now: int, accounting: frozenset[str]) -> View:
        """Return what Slurm shows.

        Raises:
            UnavailableError: If it does not answer, or not with what can be understood.
        """
        began = time.monotonic()
        try:
            jobs = text.read_queue(self.shell.ask(text.QUEUE))
            jobs, more = self._spread(jobs)
            nodes = text.read_nodes(self.shell.ask(text.NODES))
            reservations = text.read_reservations(self.shell.ask(text.RESERVATIONS))
            past, asked = self.past(accounting)
        except ValueError as error:
            raise UnavailableError.one(
                "slurm-answer", f"what Slurm printed cannot be read: {error}"
            ) from error
        took = (time.monotonic() - began) * 1000
        return View(
            now, jobs, nodes, reservations, past, asked, took_ms=took, calls=3 + more + bool(accounting)
        )

    def carry_out(self, command: tuple[str, ...]) -> str:
        """Run one command; return what went wrong.

        Raises:
            UnavailableError: If Slurm does not answer.
        """
        if command[:2] == ("scontrol", "requeuehold"):
            done = self._done(command[2])
            left = [job for job in command[2].split(",") if job not in done]
            if not left:
                return ""
            command = (*command[:2], ",".join(left))
        return self.shell.tell(command)

    def history(self, ago_seconds: int) -> Mapping[str, tuple[PastRun, ...]]:
        """Return every run in the accounting of the last so many seconds; none where it cannot be asked."""
        try:
            return text.read_accounting(self.shell.ask(text.since(ago_seconds)))
        except (UnavailableError, ValueError) as error:
            _log.warning(
                "the accounting cannot be read; runs that nobody saw are not charged", problem=str(error)
            )
            return {}

    def close(self) -> None:
        """Do nothing: each command is a process of its own."""

    def _done(self, jobs: str) -> set[str]:
        """Return which of some jobs have finished since the last look: a requeue would run them again."""
        command = ("squeue", "--noheader", "--array", "--states=COMPLETED", f"--jobs={jobs}", "--format=%i")
        return {line.strip().partition("+")[0] for line in self.shell.ask(command).splitlines()}

    def _spread(self, jobs: dict[str, SlurmJob]) -> tuple[dict[str, SlurmJob], int]:
        """Ask how jobs lie on their nodes where that does not follow; once per run."""
        open_ones = [
            job
            for job in jobs.values()
            if job.holds and job.gpus.total and len(job.nodes) > 1 and not job.spread and not text.even(job)
        ]
        if not open_ones:
            self._spreads.clear()
            return jobs, 0
        calls = 0
        if any((job.id, job.start) not in self._spreads for job in open_ones):
            found = text.read_spread(self.shell.ask(text.JOB_DETAILS))
            self._spreads = {(job.id, job.start): found.get(job.id, ()) for job in open_ones}
            calls = 1
        told = {job.id: replace(job, spread=self._spreads[job.id, job.start]) for job in open_ones}
        return jobs | told, calls

    def past(self, wanted: frozenset[str]) -> tuple[Mapping[str, tuple[PastRun, ...]], frozenset[str]]:
        """Ask the accounting; where there is none, that is no reason not to see the rest."""
        if not wanted:
            return {}, frozenset()
        found: dict[str, tuple[PastRun, ...]] = {}
        try:
            for part in text.chunks(sorted(wanted)):
                found |= text.read_accounting(self.shell.ask(text.accounting(part)))
        except UnavailableError as error:
            # Where there is no accounting, nothing more will be known; where it is down, ask again.
            return found, wanted if "accounting storage is disabled" in str(error) else frozenset()
        return found, wanted
