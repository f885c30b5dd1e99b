"""What Slurm is told: the differences between what the state wants and what Slurm shows, in few commands.

Nothing is remembered of what was ordered before, except when a warning was given: each look compares anew, so
that a command that failed, half worked, or was undone by somebody shows in the next look and is given again.
Jobs are named in lists, so that a cycle starts a handful of processes however many jobs there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from divvy.adapters.slurm.contract import read_contract
from divvy.adapters.slurm.identity import ids
from divvy.adapters.slurm.nodes import SLURM
from divvy.adapters.slurm.record import MARK, MARK_NEW, SlurmJob, View
from divvy.adapters.slurm.settings import SlurmSettings
from divvy.adapters.slurm.text import chunks
from divvy.control.loop import goes_back
from divvy.fleet.job import Phase, StopCause
from divvy.fleet.node import NodeState
from divvy.fleet.snapshot import Snapshot
from divvy.units import MINUTE

Command = tuple[str, ...]
_GENTLE: Final = (StopCause.PREEMPTED, StopCause.DRAINED)


@dataclass(slots=True)
class Wishes:
    """What should happen to which jobs."""

    hold: set[str] = field(default_factory=set)
    release: set[str] = field(default_factory=set)
    warn: dict[tuple[str, bool], set[str]] = field(default_factory=dict)
    """By (signal, whether there is a batch script)."""
    requeue: set[str] = field(default_factory=set)
    allow: set[str] = field(default_factory=set)
    """Jobs that Slurm must be allowed to requeue first."""
    cancel: set[str] = field(default_factory=set)
    adopt: set[str] = field(default_factory=set)
    """Jobs that job_submit.lua holds: from now on a hold that looks like the user's is the user's."""

    def commands(self) -> list[Command]:
        """Return the commands, those that protect somebody first."""
        mark = f"AdminComment={MARK}"
        found: list[Command] = [
            ("scontrol", "update", f"JobId={','.join(part)}", "Priority=0", mark)
            for part in _lists(self.hold)
        ]
        for (signal, batch), jobs in sorted(self.warn.items()):
            words = ("--batch",) if batch else ()
            found += (("scancel", f"--signal={signal}", *words, *part) for part in _lists(jobs))
        found += (
            ("scontrol", "update", f"JobId={','.join(part)}", "Requeue=1", mark)
            for part in _lists(self.allow)
        )
        found += (("scontrol", "requeuehold", ",".join(part)) for part in _lists(self.requeue))
        found += (("scancel", *part) for part in _lists(self.cancel))
        found += (("scontrol", "update", f"JobId={','.join(part)}", mark) for part in _lists(self.adopt))
        found += (("scontrol", "release", ",".join(part)) for part in _lists(self.release))
        return found


def _lists(jobs: Iterable[str]) -> Iterator[list[str]]:
    return chunks(ids(dict.fromkeys(jobs)))


class Steward:
    """Works out what Slurm is to be told in mode enforce.

    Args:
        snapshot: The state, read only.
        settings: How this Slurm is treated.
    """

    def __init__(self, snapshot: Snapshot, settings: SlurmSettings) -> None:
        self._snapshot = snapshot
        self._settings = settings
        self._warned: dict[tuple[str, int], int] = {}
        self._requeued: list[int] = []

    def commands(
        self,
        view: View,
        now: int,
        live: Mapping[str, int],
        managed: Mapping[str, SlurmJob],
        doomed: Iterable[str],
        strangers: Mapping[str, int],
    ) -> list[Command]:
        """Return what to run.

        Args:
            view: What Slurm shows.
            now: ms.
            live: Rows of live jobs by Slurm's id.
            managed: Managed jobs of the view.
            doomed: Jobs that wait in Slurm and were cancelled here.
            strangers: Jobs that are left to Slurm, and their submission; what holds them is lifted.
        """
        jobs = self._snapshot.jobs
        wishes = Wishes(cancel=set(doomed))
        for name, job in managed.items():
            if strangers.get(name) == job.submit:
                if job.held and job.ours:
                    wishes.release.add(name)
                continue
            row = live.get(name)
            phase = jobs.phase[row] if row is not None else Phase.QUEUED
            if row is None or phase is Phase.QUEUED:
                if job.waits and not job.held and name not in wishes.cancel:
                    wishes.hold.add(name)
            elif phase is Phase.PLACED:
                if job.held and job.ours:
                    wishes.release.add(name)
                    if job.mark == MARK_NEW:
                        wishes.adopt.add(name)
            elif phase is Phase.STOPPING:
                self._stop(wishes, row, job, now)
        running = {(name, job.start) for name, job in managed.items() if job.holds}
        self._warned = {key: at for key, at in self._warned.items() if key in running}
        return [*wishes.commands(), *self._nodes(view)]

    def _stop(self, wishes: Wishes, row: int, job: SlurmJob, now: int) -> None:
        """Tell a run to leave: warn its batch step, wait, end it; or keep it from starting."""
        jobs, name = self._snapshot.jobs, job.id
        spec, cause = jobs.spec[row], jobs.stop_cause[row]
        if job.waits:
            if cause is StopCause.CANCELLED:
                wishes.cancel.add(name)
            elif not job.held:
                wishes.hold.add(name)
        elif cause is StopCause.CANCELLED:
            if job.runs:
                wishes.cancel.add(name)
        elif cause in _GENTLE and goes_back(spec, cause) and job.over:
            self._requeue(wishes, job, now)
        elif cause in _GENTLE and job.runs and self._grace_is_over(wishes, job, now):
            if goes_back(spec, cause):
                self._requeue(wishes, job, now)
            else:
                wishes.cancel.add(name)

    def _grace_is_over(self, wishes: Wishes, job: SlurmJob, now: int) -> bool:
        """Return whether a warned run has had its time; one that was not warned yet is warned."""
        contract = read_contract(job.comment, self._settings.contract_of(job.partition))
        wait = self._settings.warn if contract.warn is None else contract.warn
        key = (job.id, job.start)
        if key not in self._warned:
            self._warned[key] = now
            if wait:
                signal = contract.signal or self._settings.warn_signal
                wishes.warn.setdefault((signal, job.batch), set()).add(job.id)
        return now >= self._warned[key] + wait

    def _requeue(self, wishes: Wishes, job: SlurmJob, now: int) -> None:
        """Put a run back, as long as this minute has seen few enough of that."""
        self._requeued = [at for at in self._requeued if at > now - MINUTE]
        if len(self._requeued) >= self._settings.requeues_per_minute:
            return
        self._requeued.append(now)
        if not job.requeue or not job.mark.startswith(MARK):
            wishes.allow.add(job.id)
        wishes.requeue.add(job.id)

    def _nodes(self, view: View) -> list[Command]:
        """Return the drains and resumes that somebody asked for here."""
        drain, resume = dict[str, set[str]](), set[str]()
        for node in self._snapshot.nodes.node:
            name = node.name.partition(":")[0]
            there = view.nodes.get(name)
            if there is None:
                continue
            drained = "DRAIN" in there.state
            wanted = node.state is NodeState.DRAINING and not node.cause.startswith(SLURM)
            if wanted and not drained:
                drain.setdefault(f"{MARK}: {node.cause}"[:200], set()).add(name)
            elif node.state is NodeState.UP and drained and there.reason.startswith(f"{MARK}:"):
                resume.add(name)
        found: list[Command] = [
            ("scontrol", "update", f"NodeName={','.join(sorted(names))}", "State=DRAIN", f"Reason={reason}")
            for reason, names in sorted(drain.items())
        ]
        if resume:
            found.append(("scontrol", "update", f"NodeName={','.join(sorted(resume))}", "State=RESUME"))
        return found


def overdue(
    snapshot: Snapshot, view: View, live: Mapping[str, int], since: dict[str, int], now: int, patience: int
) -> Sequence[tuple[str, int, str]]:
    """Return the released jobs that Slurm does not start: (Slurm's id, row, Slurm's reason).

    Args:
        snapshot: The state.
        view: What Slurm shows.
        live: Rows of live jobs by Slurm's id.
        since: Since when each could start as far as Divvy knows; kept from look to look.
        now: ms.
        patience: How long is too long, ms.
    """
    jobs = snapshot.jobs
    leaving = any(jobs.phase[row] is Phase.STOPPING and jobs.rate[row] for row in live.values())
    found: list[tuple[str, int, str]] = []
    waiting: set[str] = set()
    for name, row in live.items():
        job = view.jobs.get(name)
        if jobs.phase[row] is not Phase.PLACED or job is None or not job.waits:
            continue
        if (job.held and not job.ours) or "unfulfilled" in job.dependency:
            found.append((name, row, job.reason))
            continue
        if job.held or job.eligible > now or (leaving and job.reason in _RESOURCES):
            continue
        waiting.add(name)
        if now - since.setdefault(name, now) > (patience if job.reason in _RESOURCES else patience // 4):
            found.append((name, row, job.reason))
    for name in [name for name in since if name not in waiting]:
        del since[name]
    return found


_RESOURCES: Final = ("None", "Resources", "Priority", "BeginTime", "Cleaning", "Reservation")
