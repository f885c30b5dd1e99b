"""A real `divvy up` with real jobs under random faults: nothing lost, nothing doubled, the books exact.

Every few seconds something is done to it: loop, API or supervisor killed, the database locked, its disk
filled, its wall clock stepped. Meanwhile people submit jobs and somebody sends a thousand bad requests a
minute. Then everybody stops, it must come to rest, and its books are read.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from divvy.cli.bench_row import Row, figure
from divvy.cli.soak.check import Verdict, inspect
from divvy.cli.soak.faults import FAULTS
from divvy.cli.soak.load import Nonsense, People
from divvy.cli.soak.plane import Plane, plane
from divvy.errors import DivvyError, EngineError

Announce = Callable[[str], None]

_MINUTES: Final = 60.0
_QUICK_MINUTES: Final = 0.6
_GAP_SECONDS: Final = (1.0, 7.0)
_REST_SECONDS: Final = 180.0
#: Who send nonsense at the same time: one that waits for an answer holds up nobody else.
_SENDERS: Final = 4
_CASE: Final = "divvy up under faults"


def rows(
    *, quick: bool = False, announce: Announce = lambda _: None, minutes: float = _MINUTES, seed: int = 1
) -> Iterator[Row]:
    """Yield what was done, and what was wrong afterwards.

    Args:
        quick: Whether to stay within a minute.
        announce: Told what is being done.
        minutes: How long faults go on.
        seed: Draws jobs, faults and requests.

    Raises:
        EngineError: If it does not start at all, or does not come to rest.
    """
    seconds = 60 * (min(minutes, _QUICK_MINUTES) if quick else minutes)
    with plane() as made:
        announce("starting")
        made.start()
        if not made.until_ready():
            raise EngineError.one("bench-up", f"not ready: {_said(made)}")
        people = People(made, seed)
        nonsense = [Nonsense(made, seed + number, 1000 / _SENDERS) for number in range(_SENDERS)]
        for thread in (people, *nonsense):
            thread.start()
        done, sizes = _trouble(made, seconds, random.Random(seed), announce)  # noqa: S311 - repeatable
        people.finish()
        for sender in nonsense:
            sender.finish()
        announce("waiting until everything is over")
        made.set_clock(0)
        _rest(made, people)
        made.stop()
        announce("reading the books")
        verdict = inspect(made, people.codes, people.unsure)
    yield from _deeds(people, nonsense, done, seconds)
    yield from _findings(verdict, people, nonsense)
    yield from _memory(sizes, len(people.codes))


def _trouble(
    made: Plane, seconds: float, draw: random.Random, announce: Announce
) -> tuple[Counter[str], list[int]]:
    """Do one thing after the other; return how often each was done, and loop + API bytes over time."""
    done: Counter[str] = Counter(dict.fromkeys(FAULTS, 0))
    sizes: list[int] = []
    order: list[str] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(draw.uniform(*_GAP_SECONDS), max(end - time.monotonic(), 0)))
        size = made.resident()
        if len(size) == 2:
            sizes.append(sum(size.values()))
        if not order:  # each once, in a new order, before any comes again
            order = draw.sample(sorted(FAULTS), len(FAULTS))
        name = order.pop()
        announce(f"{end - time.monotonic():.0f} s to go: {name}")
        done[name] += FAULTS[name](made, draw)
        if not made.alive():  # a supervisor that gives up is started again, as an init system does
            made.start()
    return done, sizes


def _rest(made: Plane, people: People) -> None:
    """Wait until every job is over."""
    limit = time.monotonic() + _REST_SECONDS
    if not made.until_ready():
        raise EngineError.one("bench-up", f"did not come back: {_said(made)}")
    waiting = "nothing answered"
    while time.monotonic() < limit:
        with suppress(DivvyError):
            totals = made.client().get("status")["totals"]
            waiting = str(totals)
            listed = made.client().get("jobs", state="live", limit=1)
            if not listed["jobs"]:
                return
        time.sleep(0.5)
    raise EngineError.one(
        "bench-up", f"{len(people.codes)} jobs do not come to rest: {waiting}; {_said(made)}"
    )


def _said(made: Plane) -> str:
    parts = [made.base / "up.out", made.home / "logs" / "loop.log"]
    return " ".join(path.read_text(encoding="utf-8")[-1_000:] for path in parts if path.exists())


def _deeds(people: People, nonsense: Sequence[Nonsense], done: Counter[str], seconds: float) -> Iterator[Row]:
    yield figure(_CASE, "lasted", seconds / 60, "min")
    yield figure(
        _CASE, "jobs submitted", len(people.codes), "jobs", note=f"{people.retries} tries unanswered"
    )
    answers = sum((sender.answers for sender in nonsense), Counter[int]())
    told = ", ".join(f"{status}: {count}" for status, count in sorted(answers.items()))
    unanswered = sum(sender.unanswered for sender in nonsense)
    sent = answers.total() + unanswered
    yield figure(_CASE, "bad requests", sent, "requests", note=f"{told}; no answer: {unanswered}")
    for name, times in done.items():
        note = "" if times or name != "disk full" else "needs root, for a disk of its own"
        yield figure(_CASE, name, times, "times", note=note)


def _findings(verdict: Verdict, people: People, nonsense: Sequence[Nonsense]) -> Iterator[Row]:
    answered = sum(sender.answers.total() for sender in nonsense)
    found = {
        "jobs lost": (verdict.lost, len(people.codes)),
        "jobs that nobody submitted": (verdict.strange, len(people.codes)),
        "runs doubled": (verdict.doubled, verdict.runs),
        "wrong exit codes": (verdict.wrong, len(people.codes)),
        "ledger entries unlike the run": (verdict.unequal, verdict.runs),
        "passes decided otherwise when asked again": (verdict.decided, verdict.passes),
        "good submissions refused": (people.refused, len(people.codes)),
        "bad requests answered with a fault of the server": (
            [told for sender in nonsense for told in sender.faults],
            answered,
        ),
        "bad requests carried out": ([told for sender in nonsense for told in sender.taken], answered),
    }
    for measure, (cases, n) in found.items():
        yield figure(_CASE, measure, len(cases), "", n=n, target=0, note="; ".join(list(cases)[:3]))


def _memory(sizes: list[int], jobs: int) -> Iterator[Row]:
    yield figure(
        _CASE,
        "greatest resident size, loop + API",
        max(sizes) / 1e6 if sizes else None,
        "MB",
        n=len(sizes),
        target=600,
        note=f"over {jobs} jobs; they begin anew when killed",
    )
