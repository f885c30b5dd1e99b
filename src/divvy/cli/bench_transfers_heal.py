"""A rail that is slowed or cut while bytes are on it: who goes on, how soon, and is every byte there once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from divvy.adapters.rails.lab import RailsLab
from divvy.cli import bench_transfers_crew as who
from divvy.cli.bench_row import Row, figure, median
from divvy.cli.bench_transfers_crew import Contender, Crew, CrewError, Move
from divvy.cli.bench_transfers_setting import MIB, Setting

_FAST: Final = 400_000_000
_SLOW: Final = 100_000_000
#: Until the next turn, so that it begins with both rails.
_MENDED_SECONDS: Final = 0.8
_CASE: Final = "fast rail {} in flight"
_EVENTS: Final = ("slowed to 10%", "cut")
_PEERS: Final = (who.NIXL_DEFAULT, who.MOONCAKE)


class _Turn(NamedTuple):
    """One transfer with an event in it."""

    late_s: float
    """Beyond the time that the rails, as they were, need for the bytes."""
    report: dict[str, Any] | None
    whole: bool


def healing_rows(setting: Setting) -> Iterator[Row]:
    """Yield how Divvy and the peers go on when the fast rail of two is slowed to a tenth, or cut."""
    for contender in (who.DIVVY_NIXL, who.DIVVY_TCP, *_PEERS):
        if not who.has(contender):
            yield figure(_CASE.format("slowed or cut"), "not measured", None, "", contender=contender.label,
                         note=f"package {contender.module} is not installed")  # fmt: skip
            continue
        turns = 1 if setting.quick or contender.kind != "divvy" else setting.turns
        yield from _contender(setting, contender, turns)


def _contender(setting: Setting, contender: Contender, turns: int) -> Iterator[Row]:
    """Yield the rows of one contender: slowed first, because a cut may be its end."""
    found: dict[str, list[_Turn]] = {event: [] for event in _EVENTS}
    trouble: dict[str, str] = {}
    event = _EVENTS[0]
    with setting.lab("400mbit,100mbit", 2) as lab:
        try:
            with Crew(lab.fabric, contender, 32 * MIB) as crew:
                crew.run([Move(0, 1, 8 * MIB)])
                for event in _EVENTS:
                    setting.announce(f"{_CASE.format(event)}: {contender.label}")
                    found[event].extend(_turn(lab, crew, event, quick=setting.quick) for _ in range(turns))
        except CrewError as error:
            trouble[event] = str(error)
    for event in _EVENTS:
        yield from _rows(_CASE.format(event), contender, found[event], trouble.get(event, ""))


def _rows(case: str, contender: Contender, found: list[_Turn], trouble: str) -> Iterator[Row]:
    own = contender.kind == "divvy"
    if trouble:
        note = f"it did not end: {trouble}" if not found else f"then: {trouble}"
        yield figure(case, "ended", 0.0 if not found else None, "fraction", contender=contender.label, n=1,
                     target=1.0 if own else None, at_least=True, note=note)  # fmt: skip
    if not found:
        return
    late = [turn.late_s for turn in found]
    yield figure(
        case,
        "later than the rails allow",
        median(late),
        "s",
        contender=contender.label,
        interval=(min(late), max(late)),
        n=len(late),
        target=1.0 if own else None,
        note="32 MiB; end less the time that the rails need with no pause; interval is least and most",
    )
    wrong = sum(not turn.whole for turn in found)
    yield figure(
        case,
        "transfers with a wrong byte",
        wrong,
        "transfers",
        contender=contender.label,
        n=len(found),
        target=0 if own else None,
    )
    if own:
        yield from _accounts(case, contender.label, found)


def _accounts(case: str, label: str, found: list[_Turn]) -> Iterator[Row]:
    """Yield what Divvy's own reports say."""
    reports = [turn.report for turn in found if turn.report is not None]
    lost = sum(report["lost_bytes"] for report in reports)
    doubled = sum(not report["accounts_agree"] for report in reports)
    routed = [report["reroute_ms"] / 1e3 for report in reports]
    yield figure(
        case, "lost bytes, by both sides' accounts", lost, "bytes", contender=label, n=len(reports), target=0
    )
    yield figure(
        case,
        "transfers whose accounts differ",
        doubled,
        "transfers",
        contender=label,
        n=len(reports),
        target=0,
    )
    yield figure(
        case,
        "re-routed within, by its report",
        max(routed),
        "s",
        contender=label,
        n=len(reports),
        target=1.0,
        note="the longest: from the last word on a rail until its chunks were given to the others",
    )


def _turn(lab: RailsLab, crew: Crew, event: str, *, quick: bool) -> _Turn:
    """Move bytes, break the fast rail a quarter of the way, and mend it after."""
    size = 32 * MIB
    move = Move(0, 1, size)
    crew.clear()
    begun = crew.begin([move])
    time.sleep(max(0.0, begun + 0.25 * size * 8 / (_FAST + _SLOW) - time.monotonic()))
    broken = time.monotonic()
    rate = _FAST // 10 if event != "cut" else 0
    try:
        if rate:
            lab.set_rate(1, 0, rate)
        else:
            lab.cut(1, 0)
        moved = crew.finish([move], seconds=6 if quick else 15)[0]
    finally:
        with contextlib.suppress(ValueError):
            lab.restore(1, 0)
            lab.set_rate(1, 0, _FAST)
    time.sleep(_MENDED_SECONDS)
    before = (broken - moved.start) * (_FAST + _SLOW) / 8
    needed = broken - moved.start + max(0.0, size - before) * 8 / (rate + _SLOW)
    return _Turn(moved.seconds - needed, moved.report, crew.whole(move))
