"""Tricks that people play on schedulers, as changes to what some of them submit; everybody else stays honest.

Each takes the submissions of one account or one author as they would honestly have been and returns those of
the tricker. The work that has to be done stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from divvy.fleet.budget import Policy
from divvy.fleet.job import JobSpec
from divvy.planners.jobs.admission import DebugAllowance
from divvy.sim.contracts import Workload
from divvy.units import DAY, HOUR, MINUTE

HONEST: Final = "honest"
PIECES: Final = 8
"""Parts into which a job is split at most."""
PIECE: Final = 15 * MINUTE
LEAD: Final = 2 * HOUR
"""How long before it is needed a sleeper asks for its devices."""
CYCLE: Final = 7 * DAY
LINKS: Final = 50
"""Priorities in a chain of own swaps."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One submission and the honest job behind it.

    Attributes:
        spec: As submitted.
        submit: When, ms.
        runtime: How long it runs, ms.
        phase: Work until its first checkpoint, ms.
        wish: Row of the honest job whose work this is.
        parked: Work at its beginning that is no work at all, ms.
    """

    spec: JobSpec
    submit: int
    runtime: int
    phase: int
    wish: int
    parked: int = 0


Trick = Callable[[Sequence[Submission], Policy], list[Submission]]


def _declare(one: Submission, minimum: int) -> Submission:
    spec = one.spec
    limit = max(spec.time_limit, minimum) if spec.time_limit else 0
    return replace(one, spec=spec._replace(min_runtime=minimum, time_limit=limit))


def _all_high(mine: Sequence[Submission], policy: Policy) -> list[Submission]:  # noqa: ARG001 - one signature
    """Every job has the highest priority."""
    return [replace(one, spec=one.spec._replace(priority=100)) for one in mine]


def _all_cap(mine: Sequence[Submission], policy: Policy) -> list[Submission]:
    """Every job declares the longest minimum runtime that is allowed."""
    return [_declare(one, policy.max_min_runtime) for one in mine]


def _split(mine: Sequence[Submission], policy: Policy) -> list[Submission]:
    """Every job is cut into short pieces that look like debug jobs, all submitted at once."""
    pieces: list[Submission] = []
    for one in mine:
        count = max(1, min(PIECES, one.runtime // PIECE))
        declared = min(one.spec.min_runtime, policy.debug_max_min_runtime)
        for number in range(count):
            length = one.runtime * (number + 1) // count - one.runtime * number // count
            spec = one.spec._replace(
                id=f"{one.spec.id}-part{number}",
                time_limit=max(length, declared) if one.spec.time_limit else 0,
            )
            pieces.append(_declare(replace(one, spec=spec, runtime=max(1, length)), declared))
    return pieces


def _sleepers(mine: Sequence[Submission], policy: Policy) -> list[Submission]:
    """Devices are asked for two hours before they are needed, protected, and held idle until then."""
    return [
        _declare(
            replace(
                one,
                submit=max(0, one.submit - LEAD),
                runtime=one.runtime + LEAD,
                parked=LEAD,
                spec=one.spec._replace(time_limit=one.spec.time_limit + LEAD if one.spec.time_limit else 0),
            ),
            policy.max_min_runtime,
        )
        for one in mine
    ]


def _harvest(mine: Sequence[Submission], policy: Policy) -> list[Submission]:  # noqa: ARG001 - one signature
    """Nothing declares a minimum runtime: all time is free."""
    return [_declare(one, 0) for one in mine]


def _withdraw(mine: Sequence[Submission], policy: Policy) -> list[Submission]:  # noqa: ARG001 - one signature
    """Everything of a week is held back and submitted on its last day."""
    return [replace(one, submit=max(one.submit, (one.submit // CYCLE + 1) * CYCLE - DAY)) for one in mine]


def _chain(mine: Sequence[Submission], policy: Policy) -> list[Submission]:
    """Every job declares little and outranks most before it, so that newcomers swap their elders out."""
    return [
        _declare(
            replace(one, spec=one.spec._replace(priority=1 + number * LINKS // len(mine))),
            min(one.spec.min_runtime, policy.debug_max_min_runtime),
        )
        for number, one in enumerate(mine)
    ]


TRICKS: Final[dict[str, Trick]] = {
    "all HIGH": _all_high,
    "all 8 h": _all_cap,
    "split jobs": _split,
    "sleepers": _sleepers,
    "zero-minimum harvesting": _harvest,
    "end-of-window withdrawal": _withdraw,
    "own-swap chains": _chain,
}


def play_trick(
    honest: Workload, trick: str, mine: Callable[[JobSpec], bool], policy: Policy
) -> tuple[Workload, list[Submission]]:
    """Return what is submitted when some play a trick, and row by row what it is.

    Args:
        honest: What everybody would submit.
        trick: Name of the trick, or `HONEST` for none.
        mine: Whether a job is the tricker's.
        policy: Caps and the debug rule.
    """
    every = [
        Submission(spec, honest.submit[row], honest.runtime[row], honest.phase[row], row)
        for row, spec in enumerate(honest.spec)
    ]
    if trick != HONEST:
        others = [one for one in every if not mine(one.spec)]
        every = [*others, *TRICKS[trick]([one for one in every if mine(one.spec)], policy)]
        every.sort(key=lambda one: (one.submit, one.wish))
    allowance = DebugAllowance()
    return (
        Workload(
            [one.spec for one in every],
            [one.submit for one in every],
            [allowance.grant(one.submit, one.spec, policy) for one in every],
            [one.runtime for one in every],
            [one.phase for one in every],
            {one.spec.id: row for row, one in enumerate(every)},
        ),
        every,
    )
