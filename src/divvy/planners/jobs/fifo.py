"""`fifo`: first come, first served with EASY backfill; no budgets, no preemption.

The documented rule, re-implemented: Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem and
Feitelson, IEEE TPDS 12(6), 2001. One reservation, for the first blocked job; the others are tried in order
of submission, and start if they fit now and end by then or use only what is left then.
"""

from __future__ import annotations

from collections.abc import Sequence

from divvy.fleet.job import JobSpec
from divvy.planners.jobs.backfill import LimitQueue, Shape, shape_of
from divvy.planners.jobs.backfilling import BackfillingPlanner


class FifoPlanner(BackfillingPlanner[int]):
    """Order of submission: the row is the rank."""

    name = "fifo"

    def _key(self, spec: JobSpec) -> Shape:
        return shape_of(spec)

    def _heads(self, shape: Shape) -> Sequence[tuple[int, int, LimitQueue]]:
        queue = self._queues[shape]
        return [(queue.head(), queue.head(), queue)] if queue.waiting else ()

    def _rank(self, queue: LimitQueue, row: int) -> int:  # noqa: ARG002 - one order for all queues
        return row
