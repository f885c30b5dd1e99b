"""How much of a layer-wise transfer is really hidden behind computing, with both processors busy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from divvy.cli import bench_transfers_crew as who
from divvy.cli.bench_row import Row, figure, median
from divvy.cli.bench_transfers_crew import Contender, Crew, CrewError, Move
from divvy.cli.bench_transfers_setting import MIB, Setting, missing_rows
from divvy.planners.transfers.overlap import Pipe, finish

_CASE: Final = "16 layers of 1 MiB, 400 + 100 Mbit"
_LAYERS: Final = 16
_COMPUTE_S: Final = 0.025


class _Turn(NamedTuple):
    """One prefill, in seconds: its computing, and what came after with and without release by layer."""

    computing: float
    exposed: float
    whole: float


def layer_rows(setting: Setting) -> Iterator[Row]:
    """Yield the part of a transfer that does not lie after the computing, beside the overlap model's."""
    for contender in (who.DIVVY_NIXL, who.DIVVY_TCP):
        if not who.has(contender):
            continue
        try:
            turns = _measured(setting, contender)
        except CrewError as error:
            yield from missing_rows(_CASE, {contender.label: str(error)})
            continue
        yield from _rows(contender.label, turns)
    yield figure(
        _CASE,
        "hidden fraction",
        0.6,
        "fraction",
        contender="TopKV (claim)",
        interval=(0.6, 0.85),
        n=0,
        note="arXiv 2607.28633, by analysis, not measured; its second version says 0.76 to 1.00",
    )


def _measured(setting: Setting, contender: Contender) -> list[_Turn]:
    """Return the turns of a contender.

    Raises:
        CrewError: If it fails, or other bytes arrive than were computed.
    """
    move, turns = Move(0, 1, _LAYERS * MIB), list[_Turn]()
    with setting.lab("400mbit,100mbit", 2) as lab, Crew(lab.fabric, contender, move.size_bytes) as crew:
        crew.run([move])
        for turn in range(setting.turns):
            setting.announce(f"{_CASE}: {contender.label}, turn {turn + 1}")
            late = crew.layers(move, _LAYERS, _COMPUTE_S, early=False)
            early = crew.layers(move, _LAYERS, _COMPUTE_S, early=True)
            if not crew.whole(move):
                raise CrewError("the layers that arrived are not those that were computed")
            turns.append(
                _Turn(
                    early["computed"] - early["begin"],
                    early["end"] - early["computed"],
                    late["end"] - late["computed"],
                )
            )
    return turns


def _rows(label: str, turns: list[_Turn]) -> Iterator[Row]:
    hidden = [1 - turn.exposed / turn.whole for turn in turns]
    computing = median([turn.computing for turn in turns])
    exposed, whole = (median([turn[i] for turn in turns]) * 1e3 for i in (1, 2))
    yield figure(
        _CASE,
        "hidden fraction",
        median(hidden),
        "fraction",
        contender=label,
        interval=(min(hidden), max(hidden)),
        n=len(hidden),
        note=f"1 - exposed / whole: {exposed:.0f} of {whole:.0f} ms lie after {computing * 1e3:.0f} ms of"
        " computing; the receiver computes too; interval is least and most",
    )
    pipe = Pipe(0.0625, 0.0005, "rails")
    end = finish(computing, [float(MIB)] * _LAYERS, pipe, 1)
    model = 1 - (end - computing) / (pipe.startup_s + _LAYERS * MIB / pipe.gb_per_s / 1e9)
    yield figure(_CASE, "hidden fraction", model, "fraction", contender=f"overlap model beside {label}")
