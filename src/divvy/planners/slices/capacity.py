"""What a number of GPUs serves of one model: the curve by which a rate becomes a demand for GPUs.

Layouts of one to a few GPUs are planned once and then put together. Groups that serve apart serve the sum of
their rates, so what is composed is nearly always less than what a search over all of them would find.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from divvy.fleet.mig.profile import Layout
from divvy.planners.slices.base import Request

#: Groups of GPUs that are planned as one.
BLOCKS: Final = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Block:
    """A planned group of GPUs.

    Attributes:
        layouts: One per GPU.
        dispatcher: How its slices are served.
        rate_qps: The largest rate at which the objective holds; 0 where none does.
    """

    layouts: tuple[Layout, ...]
    dispatcher: str
    rate_qps: float


@dataclass(frozen=True)
class Curve:
    """Rates by number of GPUs.

    Attributes:
        request: Model, traffic and objective; its number of GPUs means nothing here.
        blocks: Planned groups, ascending.
    """

    request: Request
    blocks: tuple[Block, ...]

    def parts(self, gpus: int) -> tuple[Block, ...]:
        """Return the groups with the highest sum of rates that make up a number of GPUs."""
        best: list[tuple[float, tuple[Block, ...]]] = [(0.0, ())]
        for count in range(1, gpus + 1):
            options = [
                (best[count - len(block.layouts)][0] + block.rate_qps, place)
                for place, block in enumerate(self.blocks)
                if len(block.layouts) <= count
            ]
            rate, place = max(options, key=lambda option: (option[0], option[1]))
            block = self.blocks[place]
            best.append((rate, (*best[count - len(block.layouts)][1], block)))
        return best[gpus][1]

    def layouts(self, gpus: int) -> tuple[Layout, ...]:
        """Return a layout for each of a number of GPUs."""
        return tuple(layout for block in self.parts(gpus) for layout in block.layouts)

    def rate(self, gpus: int) -> float:
        """Return the rate that a number of GPUs serves within the objective."""
        return sum(block.rate_qps for block in self.parts(gpus))

    def dispatcher(self, gpus: int) -> str:
        """Return how the slices of a number of GPUs are served: by the rule of the group that serves most."""
        parts = self.parts(gpus)
        return max(parts, key=lambda block: block.rate_qps).dispatcher if parts else ""

    def needed(self, rate_qps: float, most: int) -> int:
        """Return the fewest GPUs that serve a rate, at most `most`."""
        if rate_qps <= 0:
            return 0
        return next((gpus for gpus in range(1, most) if self.rate(gpus) >= rate_qps), most)
