"""From what Slurm says to events: whatever differs from the state becomes what has happened.

Slurm is the truth about jobs. Every view is compared with the state as it is now, so that a view that was
missed, a restart of either side, or somebody's own ``scontrol`` makes no difference: the next view tells all
of it, with Slurm's own times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

import structlog

from divvy.adapters.slurm.ends import as_job, ending, run_of
from divvy.adapters.slurm.identity import base_id, is_ready
from divvy.adapters.slurm.nodes import SLURM, FleetNames, fleet_nodes
from divvy.adapters.slurm.record import MARK, SlurmJob, View
from divvy.adapters.slurm.settings import SlurmSettings
from divvy.adapters.slurm.spec import Claims, place, read_job
from divvy.control.loop import goes_back
from divvy.fleet.event import Event, NodeChanged, Started, Stopped, Stopping, Submitted, Withdrawn
from divvy.fleet.job import Phase, StopCause
from divvy.fleet.node import Node, NodeState
from divvy.fleet.snapshot import Snapshot
from divvy.planners.jobs.admission import DebugAllowance

_log = structlog.get_logger("slurm")

#: A job that neither the queue nor the accounting knows is given up after so many looks.
_LOOKS: Final = 5
_GONE: Final = "Slurm no longer knows it"
_USED: Final = "Slurm used the devices otherwise"
_LIVE: Final = (Phase.PLACED, Phase.RUNNING, Phase.STOPPING)


class Truth:
    """Makes events from views.

    Args:
        snapshot: The state, read only; it changes with every event that is taken from here.
        settings: How this Slurm is treated.
        known: Says which of some ids the store has seen before.
    """

    def __init__(
        self, snapshot: Snapshot, settings: SlurmSettings, known: Callable[[Iterable[str]], set[str]]
    ) -> None:
        self._snapshot = snapshot
        self._settings = settings
        self._known = known
        self._seen: dict[str, int] = {}
        self._allowance = DebugAllowance()
        self._claims = Claims(snapshot.tree, settings.unfunded)
        self._missing: dict[str, int] = {}
        self.names = FleetNames({})
        self.live: dict[str, int] = {}
        """Rows of live jobs by Slurm's id."""
        self.wanted: set[str] = set()
        """Jobs whose accounting the next view should have."""
        self.doomed: set[str] = set()
        """Jobs that were cancelled here and still wait in Slurm."""
        self.benched: dict[str, int] = {}
        """Jobs that were taken back, and when they may try again, ms."""
        self.faults: dict[str, tuple[str, ...]] = {}
        """Words of contracts that could not be understood, by job."""
        self.strangers: dict[str, int] = {}
        """Jobs of managed partitions for which nobody can be charged, and their submission: left to Slurm."""
        self.managed: dict[str, SlurmJob] = {}
        """Jobs of the last view that are managed."""

    def rows(self) -> dict[str, int]:
        """Return the rows of live jobs by Slurm's id, as they are now."""
        jobs = self._snapshot.jobs
        self.live = {base_id(jobs.spec[row].id): row for row in jobs.live}
        return self.live

    def events(self, view: View, now: int) -> Iterator[Event]:
        """Yield what has happened; each event must be applied before the next is asked for."""
        self.names = FleetNames(view.nodes)
        if self._claims.tree is not self._snapshot.tree:
            self._claims = Claims(self._snapshot.tree, self._settings.unfunded)
        self.rows()
        self.wanted.clear()
        self.managed = {name: job for name, job in view.jobs.items() if self._manages(job)}
        yield from self._nodes(view, now)
        for name in list(self.live):
            yield from self._follow(name, view, now)
        yield from self._arrivals(view, now)
        if view.history:
            yield from self._unseen(view, now)
        yield from self._make_room(now)

    # -- nodes ----------------------------------------------------------------------------------------

    def _manages(self, job: SlurmJob) -> bool:
        if not job.gpus.total:
            return False
        chosen = self._settings.partitions
        return not chosen or any(name in chosen for name in job.partition.split(","))

    def _nodes(self, view: View, now: int) -> Iterator[Event]:
        foreign, ours = dict[str, int](), dict[str, int]()
        for name, job in view.jobs.items():
            if job.holds and job.gpus.total:
                mine = name in self.managed and self.strangers.get(name) != job.submit
                held = ours if mine else foreign
                for place, gpus in self.where(job):
                    held[place] = held.get(place, 0) + gpus
        there = {node.name: node for node in fleet_nodes(view, self.names, self._settings, foreign, ours)}
        table = self._snapshot.nodes
        for old in list(table.node):
            gone = replace(old, gpus=0, state=NodeState.DOWN, cause=f"{SLURM}no such node")
            new = there.pop(old.name, gone)
            if _is_ours(old, new):
                new = replace(new, state=old.state, cause=old.cause)
            if new != old:
                yield NodeChanged(now, new)
        for node in there.values():
            yield NodeChanged(now, node)

    def where(self, job: SlurmJob) -> tuple[tuple[str, int], ...]:
        """Return where a job is, as (node name here, devices) pairs."""
        return tuple(pair for pair in place(job, self.names) if pair[0])

    # -- jobs that are known ----------------------------------------------------------------------------

    def _follow(self, name: str, view: View, now: int) -> Iterator[Event]:
        """Yield what has become of a live job."""
        row = self.live[name]
        job = view.jobs.get(name)
        if job is None:
            yield from self._vanished(name, row, view, now)
            return
        phase = self._snapshot.jobs.phase[row]
        if phase is Phase.QUEUED:
            yield from self._queued(row, job)
        elif phase in _LIVE:
            yield from self._running(row, job, view, now)

    def _queued(self, row: int, job: SlurmJob) -> Iterator[Event]:
        spec = self._snapshot.jobs.spec[row]
        if job.runs and job.start:
            yield from self._start(spec.id, job)
        elif job.over:
            if job.ran:
                yield from self._start(spec.id, job)
                yield ending(spec, job, None)
            else:
                yield Withdrawn(job.end or job.submit, spec.id)

    def _start(self, name: str, job: SlurmJob) -> Iterator[Event]:
        """Yield the start of a run, where it truly is."""
        placement = tuple((node, gpus) for node, gpus in self.where(job) if node in self._snapshot.nodes.row)
        if placement:
            yield Started(job.start, name, placement)

    def _running(self, row: int, job: SlurmJob, view: View, now: int) -> Iterator[Event]:
        """Yield what became of a job that was placed, runs, or was told to leave."""
        jobs = self._snapshot.jobs
        spec, began = jobs.spec[row], jobs.rate[row] > 0
        if job.waits:
            if began:
                yield from self._back(row, job, view, now)
            elif jobs.phase[row] is Phase.STOPPING:
                yield from self._never_began(row, job, now)
            return
        if job.state == "COMPLETING":
            return  # what becomes of it shows when its devices are free
        if began and job.start and job.start > jobs.started[row]:
            # Requeued and started again between two views.
            yield from self._ended_before(row, job, view)
            if not jobs.rate[row]:
                yield from self._start(spec.id, job)
        elif not began and job.start and (job.runs or job.ran):
            yield from self._start(spec.id, job)
        if job.over and not self._is_going_back(row, job):
            yield from self._end(row, job, now)

    def _end(self, row: int, job: SlurmJob, now: int) -> Iterator[Event]:
        """Yield the end of a job that is over in Slurm."""
        jobs = self._snapshot.jobs
        spec = jobs.spec[row]
        if jobs.rate[row]:
            yield ending(spec, job, self._asked(row))
        elif jobs.phase[row] in _LIVE:
            cause = StopCause.CANCELLED if job.state == "CANCELLED" else StopCause.FAILED
            yield Stopped(job.end or now, spec.id, cause, requeue=False, detail=f"Slurm: {job.state}")

    def _asked(self, row: int) -> StopCause | None:
        jobs = self._snapshot.jobs
        return jobs.stop_cause[row] if jobs.phase[row] is Phase.STOPPING else None

    def _is_going_back(self, row: int, job: SlurmJob) -> bool:
        """Return whether a run that ended by itself while it was being warned is put back by a command."""
        asked = self._asked(row)
        gentle = asked in (StopCause.PREEMPTED, StopCause.DRAINED)
        spec = self._snapshot.jobs.spec[row]
        name = base_id(spec.id)
        if not gentle or asked is None or not goes_back(spec, asked) or job.exit_code == 0:
            return False
        if job.state not in ("FAILED", "CANCELLED", "TIMEOUT") or not job.batch:
            return False
        looks = self._missing[name] = self._missing.get(name, 0) + 1
        return looks <= _LOOKS

    def _back(self, row: int, job: SlurmJob, view: View, now: int) -> Iterator[Event]:
        """Yield that a run was put back into Slurm's queue, once it may start again."""
        jobs = self._snapshot.jobs
        spec = jobs.spec[row]
        if self._asked(row) is StopCause.CANCELLED:
            return  # it is cancelled where it waits, and that is its end
        if jobs.phase[row] is not Phase.STOPPING:
            yield Stopping(now, spec.id, StopCause.NODE_LOST)
        if job.eligible <= now:
            yield from self._ended_before(row, job, view)
        else:
            self.wanted.add(job.id)

    def _ended_before(self, row: int, job: SlurmJob, view: View) -> Iterator[Stopped]:
        """Yield the end of the run before the present one, as soon as the accounting tells it.

        Where it does not, the submit time is taken: a requeue sets it anew, when the devices are free.
        """
        jobs = self._snapshot.jobs
        spec, began = jobs.spec[row], jobs.started[row]
        run = run_of(view.past.get(job.id, ()), began)
        if run is None or not run.end:
            looks = self._missing[job.id] = self._missing.get(job.id, 0) + 1
            self.wanted.add(job.id)
            if looks <= _LOOKS:
                return
        end = run.end if run is not None and run.end else job.submit
        cause = self._asked(row)
        detail = ""
        if cause is None or cause is StopCause.NODE_LOST:
            cause = StopCause.NODE_LOST
            detail = "Slurm put it back into its queue" + (f" ({run.state})" if run is not None else "")
        self._missing.pop(job.id, None)
        yield Stopped(max(end, began), spec.id, cause, requeue=True, detail=detail)

    def _never_began(self, row: int, job: SlurmJob, now: int) -> Iterator[Event]:
        """Yield that a job which was told to leave before it began is back in the queue, or gone."""
        jobs = self._snapshot.jobs
        spec, cause = jobs.spec[row], jobs.stop_cause[row]
        name = base_id(spec.id)
        if cause is StopCause.CANCELLED:
            self.doomed.add(name)
            return
        if job.held and self.benched.get(name, 0) <= now and is_ready(job, now):
            self.benched.pop(name, None)
            yield Stopped(now, spec.id, cause, requeue=True, detail="it had not begun")

    def _vanished(self, name: str, row: int, view: View, now: int) -> Iterator[Event]:
        """Yield the end of a job that the queue no longer shows, as the accounting tells it."""
        jobs = self._snapshot.jobs
        spec = jobs.spec[row]
        runs = view.past.get(name, ())
        if name not in view.asked:
            self.wanted.add(name)
            return
        last = runs[-1] if runs else None
        if last is None or not last.end:
            looks = self._missing[name] = self._missing.get(name, 0) + 1
            self.wanted.add(name)
            if looks <= _LOOKS:
                return
        self._missing.pop(name, None)
        if last is not None and last.start and last.end and not jobs.rate[row]:
            yield from self._start(spec.id, as_job(last))
        if jobs.rate[row]:
            if last is None or not last.end:
                yield Stopped(now, spec.id, StopCause.FAILED, requeue=False, detail=_GONE)
            else:
                run = run_of(runs, jobs.started[row]) or last
                yield ending(spec, as_job(run), self._asked(row))
        elif jobs.phase[row] is Phase.QUEUED:
            yield Withdrawn(last.end if last is not None and last.end else now, spec.id)
        elif jobs.phase[row] in _LIVE:
            yield Stopped(now, spec.id, StopCause.CANCELLED, requeue=False, detail=_GONE)

    # -- jobs that are new ----------------------------------------------------------------------------

    def _arrivals(self, view: View, now: int) -> Iterator[Event]:
        """Yield jobs that were not known, with what has become of them already."""
        unknown: list[SlurmJob] = []
        for name, job in self.managed.items():
            if name in self.live or self._seen.get(name) == job.submit:
                continue
            if self._was_cancelled(job):
                self.doomed.add(name)
            elif self._is_echo(job):
                self._seen[name] = job.submit
            elif job.over or job.runs or is_ready(job, now):
                unknown.append(job)
        before = self._known(job.id for job in unknown) if unknown else set()
        for job in unknown:
            yield from self._arrive(job, now, before=job.id in before)
        self._seen = {name: at for name, at in self._seen.items() if name in view.jobs}
        self.faults = {name: words for name, words in self.faults.items() if base_id(name) in self.live}
        self.strangers = {name: at for name, at in self.strangers.items() if name in view.jobs}
        self.doomed &= {name for name, job in view.jobs.items() if job.waits}

    def _was_cancelled(self, job: SlurmJob) -> bool:
        """Return whether a job that waits in Slurm was cancelled here since it entered the queue."""
        jobs = self._snapshot.jobs
        row = jobs.row.get(job.id)
        cancelled = row is not None and jobs.phase[row] is Phase.CANCELLED
        return row is not None and cancelled and job.waits and job.submit < jobs.stopped[row]

    def _is_echo(self, job: SlurmJob) -> bool:
        """Return whether a run that is over came back: a slurmctld that crashed restores its last save."""
        jobs = self._snapshot.jobs
        row = jobs.row.get(job.id)
        return row is not None and job.holds and jobs.phase[row].terminal and jobs.started[row] == job.start

    def _arrive(self, job: SlurmJob, now: int, *, before: bool) -> Iterator[Event]:
        if job.over and (before or not job.nodes or job.start >= job.end or not self._recent(job, now)):
            self._seen[job.id] = job.submit
            return
        name = f"{job.id}@{job.submit // 1000}" if before else job.id
        read = read_job(job, name, self._settings, self._claims, self.names, self._snapshot.policy)
        if read is None:
            self._seen[job.id] = self.strangers[job.id] = job.submit
            _log.warning("not managed: no account claims it, and there is no unfunded one", job=job.id)
            return
        if read.contract.faults:
            self.faults[name] = read.contract.faults
            _log.warning("contract not understood", job=job.id, faults=read.contract.faults)
        submitted = min(job.submit, now)
        debug = self._allowance.grant(submitted, read.spec, self._snapshot.policy)
        yield Submitted(submitted, read.spec, debug)
        row = self._snapshot.jobs.row.get(name)
        if row is None or self._snapshot.jobs.phase[row].terminal:
            # Refused, and the loop's log says why.
            self._seen[job.id] = self.strangers[job.id] = job.submit
            return
        self.live[job.id] = row
        if job.runs and job.start:
            yield from self._start(name, job)
        elif job.over:
            yield from self._start(name, job)
            if self._snapshot.jobs.rate[row]:
                yield ending(read.spec, job, None)

    def _unseen(self, view: View, now: int) -> Iterator[Event]:
        """Yield the jobs that came and went while nobody looked, run by run."""
        gone = {
            name: [as_job(run) for run in runs if run.end and run.end > run.start > 0 and run.gpus.total]
            for name, runs in view.history.items()
            if name not in view.jobs and name not in self.live
        }
        before = self._known(name for name, runs in gone.items() if runs)
        for name, runs in gone.items():
            if not runs or name in before or not self._recent(runs[-1], now) or not self._manages(runs[0]):
                continue
            read = read_job(runs[0], name, self._settings, self._claims, self.names, self._snapshot.policy)
            if read is None:
                continue
            yield Submitted(min(runs[0].submit, now), read.spec)
            row = self._snapshot.jobs.row.get(name)
            for run in runs:
                if row is not None and not self._snapshot.jobs.phase[row].terminal:
                    yield from self._start(name, run)
                    if self._snapshot.jobs.rate[row]:
                        yield ending(read.spec, run, None)._replace(requeue=run is not runs[-1])

    def _recent(self, job: SlurmJob, now: int) -> bool:
        """Return whether a run that nobody saw is to be charged: what ended after the first tree held."""
        return job.end > self._snapshot.epochs[0].since and job.end <= now

    # -- room -----------------------------------------------------------------------------------------

    def _make_room(self, now: int) -> Iterator[Event]:
        """Take promises back on nodes where Slurm put something else; the pass that follows promises anew."""
        jobs, nodes = self._snapshot.jobs, self._snapshot.nodes
        for node in range(len(nodes)):
            if nodes.free[node] >= 0:
                continue
            promised = [
                row
                for row in reversed(jobs.live)
                if jobs.phase[row] is Phase.PLACED and any(place == node for place, _ in jobs.placement[row])
            ]
            for row in promised:
                if nodes.free[node] >= 0:
                    break
                spec = jobs.spec[row]
                yield Stopped(now, spec.id, StopCause.START_FAILED, requeue=True, detail=_USED)


def _is_ours(old: Node, new: Node) -> bool:
    """Return whether the state here goes before Slurm's: a drain asked for here, done yet or undone yet."""
    asked = old.state is NodeState.DRAINING and not old.cause.startswith(SLURM)
    if new.state is NodeState.UP:
        return asked
    ordered = new.state is NodeState.DRAINING and new.cause.startswith(f"{SLURM}{MARK}:")
    return ordered and (asked or old.state is NodeState.UP)
