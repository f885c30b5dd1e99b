"""The Ray engine: the port `Engine` over a Ray cluster that stays the truth about its jobs.

Every run is one Ray job whose submission id carries this control plane, the job and the attempt. Each look
at Ray is compared with what should run: what is not there is submitted, what should leave is stopped, what
is over is reported with Ray's times. A request that was lost, or that got through although it seemed lost,
makes no difference: the next look tells. See docs/adr/0160-ray-jobs.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from divvy.adapters.courier import Courier
from divvy.adapters.ray import outcome
from divvy.adapters.ray.api import RayApi
from divvy.adapters.ray.order import OrderError, request, submission_id
from divvy.adapters.ray.record import VERDICT, Command, Forget, RayJob, RayView, Stop, Submit
from divvy.control.launch import LaunchSpec, run_directory
from divvy.control.loop import goes_back
from divvy.control.ports import Clock, Launch, Order
from divvy.errors import DivvyError
from divvy.fleet.device import GENERIC, weight_of
from divvy.fleet.event import Event, NodeChanged, Started, Stopped
from divvy.fleet.job import StopCause
from divvy.fleet.node import Node, NodeState
from divvy.fleet.snapshot import Snapshot
from divvy.units import HOUR, SECOND

_LOG: Final = logging.getLogger(__name__)
_RAY: Final = "ray: "
_PERIOD_SECONDS: Final = 1.0
_FRESH_MS: Final = 30 * SECOND
_PATIENCE_SECONDS: Final = 120.0
_KEEP_MS: Final = 24 * HOUR
_FORGETS: Final = 50
_STOP_AGAIN_MS: Final = 30 * SECOND
_WAIT_MS: Final = 5 * SECOND
_LONGEST_WAIT_MS: Final = 300 * SECOND


@dataclass(slots=True)
class Run:
    """A run that is not over.

    Attributes:
        launch: The order.
        mark: File that names the life of the cluster in which it was submitted.
        asked: Why it was told to leave; None while it was not.
        began: Whether its start was reported.
        seen: Whether Ray has shown it.
        told_at: When Ray was last told to stop it.
    """

    launch: Launch
    mark: Path
    asked: StopCause | None = None
    began: bool = False
    seen: bool = False
    told_at: int = -_STOP_AGAIN_MS


class RayEngine:
    """Runs jobs as Ray jobs. One object, one thread besides its courier's.

    Args:
        api: Ray.
        owner: How the submission ids of this control plane begin.
        home: State directory; ``ray/`` in it belongs to this engine, and the logs go to ``jobs/``.
        details: Returns what a job runs.
        snapshot: The state, read only.
        clock: Time.
    """

    def __init__(
        self,
        api: RayApi,
        owner: str,
        home: Path,
        details: Callable[[str], LaunchSpec],
        snapshot: Snapshot,
        clock: Clock,
    ) -> None:
        self._api = api
        self._owner = owner
        self._home = home
        self._details = details
        self._snapshot = snapshot
        self._clock = clock
        self._marks = home / "ray"
        self._marks.mkdir(parents=True, exist_ok=True)
        self._runs: dict[str, Run] = {}
        self._view: RayView | None = None
        self._told = False
        self._not_before = 0
        self._wait = _WAIT_MS
        self._events: list[Event] = []
        self._courier: Courier[RayView, Command] = Courier(api, clock.now, _PERIOD_SECONDS, "Ray")

    # -- the port -------------------------------------------------------------------------------------

    def submit(self, orders: Sequence[Order]) -> list[Event]:
        """Take orders; Ray hears of them at once if it was seen lately."""
        for order in orders:
            key = submission_id(self._owner, order.job, order.attempt)
            if isinstance(order, Launch):
                self._runs.setdefault(key, Run(order, self._marks / key))
            elif key in self._runs and (not self._runs[key].asked or order.cause is StopCause.CANCELLED):
                self._runs[key].asked = order.cause
        self._told = True
        self._api.watched = frozenset(self._runs)
        self._act()
        return []

    def poll(self) -> Iterator[Event]:
        """Yield what happened; each event must be applied before the next is asked for."""
        view = self._courier.take()
        events, self._events = self._events, []
        yield from events
        if view is None:
            return
        self._view = view
        now = self._clock.now()
        yield from self._nodes(view, now)
        for key, run in list(self._runs.items()):
            yield from self._follow(key, run, view, now)
        self._api.watched = frozenset(self._runs)
        self._act()

    # -- for the process around it --------------------------------------------------------------------

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when `poll` has something to report."""
        return self._courier.fileno()

    def pause_ms(self) -> int | None:
        """Return after how many ms to call `poll` even if nothing becomes readable; None: no need."""
        return 0 if self._events else None

    def may_act(self) -> bool:
        """Return whether decisions may be carried out: on a view that is fresh."""
        return self._view is not None and self._clock.now() - self._view.at <= _FRESH_MS

    @property
    def problem(self) -> str:
        """Return why Ray cannot be seen; empty where it can."""
        return self._courier.problem

    def close(self) -> None:
        """Let go; what runs goes on."""
        self._courier.close()

    # -- what happened --------------------------------------------------------------------------------

    def _nodes(self, view: RayView, now: int) -> Iterator[Event]:
        """Yield what changed about the nodes; a drain that was asked for here is kept."""
        there = dict(view.nodes)
        for old in list(self._snapshot.nodes.node):
            ray = there.pop(old.name, None)
            if ray is None:
                new = replace(old, state=NodeState.DOWN, cause=f"{_RAY}not in the cluster")
            else:
                new = replace(old, gpus=ray.gpus, model=ray.model or GENERIC.name)
                new = replace(new, weight=weight_of(new.model))
                if old.cause.startswith(_RAY):
                    new = replace(new, state=NodeState.UP, cause="")
            if new != old:
                yield NodeChanged(now, new)
        for ray in there.values():
            model = ray.model or GENERIC.name
            yield NodeChanged(now, Node(ray.name, ray.gpus, model, weight_of(model)))

    def _follow(self, key: str, run: Run, view: RayView, now: int) -> Iterator[Event]:
        """Yield what became of a run."""
        job = view.jobs.get(key)
        spec = run.launch.spec
        if job is None:
            if self._lost(run, view):
                cause = run.asked if run.asked is not None else StopCause.NODE_LOST
                detail = "Ray no longer knows it: the cluster was restarted"
                yield self._drop(key, run, Stopped(now, spec.id, cause, goes_back(spec, cause), None, detail))
            elif run.asked is not None:
                back = goes_back(spec, run.asked)
                yield self._drop(key, run, Stopped(now, spec.id, run.asked, back, None, "it had not begun"))
            return
        run.seen = True
        if job.began and not run.began:
            run.began = True
            self._wait = _WAIT_MS
            yield Started(min(job.began, now), spec.id)
        if job.over and job.log is not None:
            self._keep_log(run.launch, job)
            stopped = outcome.stopped(spec, job, run.asked, min(job.ended or now, now))
            if stopped.cause is StopCause.START_FAILED:
                self._not_before, self._wait = now + self._wait, min(self._wait * 2, _LONGEST_WAIT_MS)
            yield self._drop(key, run, stopped)

    def _lost(self, run: Run, view: RayView) -> bool:
        """Return whether a run that Ray does not show was there, in this life of the cluster or another."""
        try:
            session = run.mark.read_text(encoding="utf-8")
        except FileNotFoundError:
            return run.seen
        return run.seen or session != view.session

    def _drop(self, key: str, run: Run, stopped: Stopped) -> Stopped:
        """Forget a run that is over."""
        del self._runs[key]
        run.mark.unlink(missing_ok=True)
        return stopped

    def _keep_log(self, launch: Launch, job: RayJob) -> None:
        """Put the end of what a run printed where logs are read."""
        lines = (job.log or "").splitlines(keepends=True)
        place = run_directory(self._home, launch.job, launch.attempt)
        try:
            place.mkdir(parents=True, exist_ok=True)
            text = "".join(line for line in lines if not line.startswith(VERDICT))
            (place / "stdout").write_text(text, encoding="utf-8")
            (place / "stderr").touch()
        except OSError as error:
            _LOG.warning("the log of %s cannot be kept: %s", job.run, error)

    # -- what is to be done ---------------------------------------------------------------------------

    def _act(self) -> None:
        """Tell Ray what it does not do yet."""
        view = self._view
        if view is None or not self._told or not self.may_act():
            return
        now = self._clock.now()
        commands = [*self._commands(view, now), *self._rubbish(view, now)]
        if commands:
            self._courier.send(commands)

    def _commands(self, view: RayView, now: int) -> Iterator[Command]:
        for key, run in self._runs.items():
            job = view.jobs.get(key)
            if job is None:
                if run.asked is None and now >= self._not_before and not self._lost(run, view):
                    yield from self._begin(key, run, view)
            elif not job.over and run.asked is not None and now - run.told_at >= _STOP_AGAIN_MS:
                run.told_at = now
                yield Stop(key)

    def _begin(self, key: str, run: Run, view: RayView) -> Iterable[Command]:
        """Return the command that begins a run; nothing while its nodes are not there."""
        launch = run.launch
        if any(name not in view.nodes for name, _ in launch.placement):
            run.asked = StopCause.START_FAILED
            return ()
        try:
            body = request(key, launch, self._details(launch.job), view.nodes, _PATIENCE_SECONDS)
        except (OrderError, DivvyError) as error:
            # What is not there, or cannot be handed on, will not be there tomorrow.
            self._events.append(
                Stopped(self._clock.now(), launch.job, StopCause.FAILED, False, None, str(error))
            )
            run.asked = StopCause.FAILED
            return ()
        run.mark.write_text(view.session, encoding="utf-8")
        return (Submit(key, body),)

    def _rubbish(self, view: RayView, now: int) -> Iterator[Command]:
        """Yield what ends runs that nobody ordered, and removes records that are old."""
        others = [job for key, job in view.jobs.items() if key not in self._runs]
        for job in others:
            if not job.over:
                _LOG.warning("run %s is not known to the state and is stopped", job.run)
                yield Stop(job.run)
        old = [job.run for job in others if job.over and job.ended < now - _KEEP_MS]
        for run in old[:_FORGETS]:
            yield Forget(run)
