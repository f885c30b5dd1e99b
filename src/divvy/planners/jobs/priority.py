"""`priority`: priorities, opt-out from preemption, and a cap per team on what opted out.

The rule that the source of the budget policy describes as its old system, re-implemented. Source: Ai2,
"Impactful scheduling for GPU clusters" (9 October 2026), where it is sketched and not specified; what it
leaves open is decided here as follows.

- Jobs of all teams stand in one order: priority, then age. One that does not fit blocks nobody behind it.
- A job that declares a minimum runtime has opted out from preemption: it keeps its devices to its end. What
  declares none may be preempted at any time, by jobs that opted out and by any of higher priority, the
  lowest priority and the latest started first.
- Jobs of a team that opted out hold at most the team's share of the fleet; more of them wait. What did not
  opt out is not counted.

What the rule does not know: the past, a minimum runtime as such, reclaim.
"""

from __future__ import annotations

from divvy.fleet.job import JobSpec
from divvy.fleet.reason import Reason
from divvy.planners.jobs.backfill import Shape
from divvy.planners.jobs.quota import Ask, Place, QuotaPlanner, Team

_REASONS = (Reason.PREEMPTED_UNALLOCATED, Reason.STARTED_OVER_UNALLOCATED)


class PriorityPlanner(QuotaPlanner):
    """Plans by priority and caps; see the module's text."""

    name = "priority"

    def _decide(self) -> None:
        self._kept = {leaf: _opted_out(team) for leaf, team in self._teams.items()}
        self._soft = sorted(
            (run for team in self._teams.values() for run in team.runs.values() if not run.protected),
            key=lambda run: (run.priority, -run.started, -run.row),
        )
        vain: set[tuple[int, Ask]] = set()
        while any(self._turn(entry, vain) for entry in self._entries(vain)):
            pass

    def _ask(self, spec: JobSpec) -> Ask:
        return Ask(Shape(spec.gpus, spec.per_node, spec.model), kept=spec.allocated)

    def _entries(self, vain: set[tuple[int, Ask]]) -> list[tuple[Place, int, Ask]]:
        """Return the first jobs of all teams in order; those without any hope left out."""
        free = self._room.total
        soft = free + sum(run.gpus for run in self._soft if run.row in self._teams[run.leaf].runs)
        found: list[tuple[Place, int, Ask]] = []
        for leaf in self._asking:
            room = self._quota[leaf] - self._kept[leaf]
            for ask, queue in self._teams[leaf].queues.items():
                gpus = ask.shape.gpus
                hope = gpus <= min(room, soft) if ask.kept else gpus <= (soft if self._ranked else free)
                if hope and self._fits[ask.shape] and (leaf, ask) not in vain:
                    found.append((queue[0], leaf, ask))
        return sorted(found)

    def _turn(self, entry: tuple[Place, int, Ask], vain: set[tuple[int, Ask]]) -> bool:
        place, leaf, ask = entry
        if self._try(place, leaf, ask):
            return True
        vain.add((leaf, ask))
        return False

    def _try(self, place: Place, leaf: int, ask: Ask) -> bool:
        shape, keeps = ask
        placement = self._find(shape)
        if placement is not None:
            self._start(place[2], placement, Reason.STARTED_FREE)
        else:
            weaker = [
                run
                for run in self._soft
                if run.row in self._teams[run.leaf].runs
                and run.started < self._now
                and (keeps or run.priority < -place[0])
            ]
            if self._room.total + sum(run.gpus for run in weaker) < shape.gpus:
                return False
            found = self._make_room(shape, weaker, lambda _run, _taken: True)
            if found is None:
                return False
            self._replace(place[2], found, _REASONS, self._ratio)
        if keeps:
            self._kept[leaf] += shape.gpus
        return True

    def _ratio(self, leaf: int) -> float:
        return self._kept[leaf] / self._quota[leaf] if self._quota[leaf] else float("inf")


def _opted_out(team: Team) -> int:
    return sum(run.gpus for run in team.runs.values() if run.protected)
