"""What numbers of GPUs serve of a service's traffic: plans of small groups, each proved by replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from divvy.planners.slices.base import Choice, Request
from divvy.planners.slices.capacity import BLOCKS, Block, Curve
from divvy.planners.slices.registry import find_planner
from divvy.sim.queries.judge import ReplayJudge
from divvy.sim.queries.study import make_study, plan_and_prove

SEEDS: Final = 2
QUERIES: Final = 6_000


def measure_curve(
    request: Request,
    most: int,
    planner: str = "divvy",
    dispatcher: str = "divvy",
    told: Callable[[str], None] = lambda _: None,
) -> Curve:
    """Return the curve of a request, whose number of GPUs is ignored.

    Args:
        request: Model, traffic and objective.
        most: GPUs beyond which nobody asks.
        planner: Planner of slices, as on the command line.
        dispatcher: Dispatch rule, as on the command line.
        told: Hears what is being planned.

    Raises:
        InputError: If some batch fits on no slice, or the planner or rule does not exist.
    """
    blocks = []
    for gpus in BLOCKS:
        if gpus > max(most, 1):
            break
        told(f"{request.profile.model}: {gpus} GPU{'s' if gpus > 1 else ''}")
        study = make_study(replace(request, gpus=gpus), SEEDS, queries=QUERIES)
        found, proof = plan_and_prove(study, find_planner(planner), dispatcher)
        blocks.append(Block(found.layouts, found.choice.dispatcher, proof.rate_qps))
    return Curve(replace(request, gpus=1), tuple(blocks))


@dataclass
class Rater:
    """Rates of slices by replay; what was once asked is remembered.

    Attributes:
        curve: Gives the request and the dispatch rule.
    """

    curve: Curve
    _known: dict[tuple[int, ...], float] = field(default_factory=dict)
    _judge: ReplayJudge | None = None

    def __call__(self, slices: tuple[int, ...]) -> float:
        """Return the largest rate at which the objective holds; 0 where it never does."""
        if slices not in self._known:
            self._known[slices] = self._rate(slices)
        return self._known[slices]

    def _rate(self, slices: Sequence[int]) -> float:
        if not slices:
            return 0.0
        request = self.curve.request
        if self._judge is None:
            self._judge = ReplayJudge(request, QUERIES)
        gpus = -(-sum(slices) // request.sku.compute_slices)
        choice = Choice(tuple(slices), self.curve.dispatcher(gpus))
        return self._judge.rate(choice, tuple(range(SEEDS)), 0.0, sum(map(self._most, slices)))

    def _most(self, size: int) -> float:
        """Return a rate that one slice does not reach: as if all queries were of its quickest batch."""
        request = self.curve.request
        times = [request.time_us(size, batch) for batch in request.batches.batches]
        return 1e6 / min((time for time in times if time > 0), default=1_000_000)
