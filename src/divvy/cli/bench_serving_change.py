"""A change of layouts under load: queries that fail, and the price beside the plan's."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from divvy.adapters.lab.lab import Lab
from divvy.adapters.load.openloop import fire_now
from divvy.adapters.load.volley import Volley
from divvy.adapters.mig.carry_out import layouts_of
from divvy.adapters.mig.emulator import Crash, EmulatedSmi
from divvy.adapters.mig.smi import SmiDriver
from divvy.cli.bench_row import Row, figure
from divvy.cli.bench_serving_contenders import Place
from divvy.cli.bench_serving_divvy import served, write_place
from divvy.cli.bench_serving_search import make_plan
from divvy.cli.bench_serving_stage import FIRST_SEED, Deployed, Stage
from divvy.cli.lab_change import Clock, Front, LiveChange, lost_by_clock, lost_by_steps
from divvy.cli.lab_layout import read_layout
from divvy.cli.lab_slices import make_specs
from divvy.fleet.mig.change import Change, change_from_json, plan_change
from divvy.fleet.mig.layout import creation_order
from divvy.fleet.mig.profile import Layout
from divvy.planners.slices.base import Choice
from divvy.units import parse_json

_LAYOUTS: Final = ("3+3,3+3", "4+2+1,4+2+1", "3+2+2,7")
_RATE_QPS: Final = 12.0
#: Seconds that the emulated driver needs for creating or destroying an instance.
_ACT_SECONDS: Final = 0.4
_CASE: Final = "bert, 2 GPUs, layouts changed while serving"


class _SlowSmi(EmulatedSmi):
    """The emulator with the time that a driver takes."""

    def _act(self) -> None:
        super()._act()
        time.sleep(_ACT_SECONDS)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a change did: the change, its clock, and the queries meanwhile."""

    change: Change
    clock: Clock
    volley: Volley


def change_rows(stage: Stage, *, quick: bool) -> Iterator[Row]:
    """Yield failed queries and the price of changes; the first gives the times of steps, the next is planned.

    In a full run the second change is broken off half-way (the emulated machine dies) and goes on from its
    note; a quick run breaks off none.
    """
    layouts = [read_layout(text, stage.request.sku.name)[1] for text in _LAYOUTS]
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lab = stack.enter_context(Lab())
        running = lab.start(make_specs(stage.request.sku, layouts[0], stage.profile, largest=32), apart=True)
        deployed = Deployed(layouts[0], Choice((), "divvy"), 0.0)
        file = write_place(Place(stage, deployed, running, home))
        url, _ = stack.enter_context(served(file))
        front = Front(url, file, str(home / "profile.csv"), stage.request.slo_us / 1e3, "divvy")
        machine = _SlowSmi(stage.request.sku, stage.case.gpus)
        _cut(machine, layouts[0])
        outcomes = [
            _changed(stage, lab, front, machine, wanted, home, broken=n == 1 and not quick)
            for n, wanted in enumerate(layouts[1:])
        ]
    failed = sum(int((~one.volley.good).sum()) for one in outcomes)
    total = sum(one.volley.good.size for one in outcomes)
    how = "one of the two broken off half-way and resumed" if not quick else "none of the two broken off"
    yield figure(
        _CASE,
        "failed queries",
        float(failed),
        "queries",
        contender="divvy serve, divvy",
        n=total,
        target=0,
        note=f"{' -> '.join(_LAYOUTS)} at {_RATE_QPS:g} queries/s, {how}; MIG driver emulated",
    )
    first, second = outcomes
    planned = lost_by_steps(second.change, first.clock.means())
    measured = lost_by_clock(second.change, second.clock)
    yield figure(
        _CASE,
        "price of the second change against the plan",
        abs(measured / planned - 1),
        "relative",
        contender="divvy serve, divvy",
        target=0.2,
        note=f"{measured:.1f} compute-slice seconds out of service, {planned:.1f} planned from"
        f" the times of the first one's steps; an emulated act takes {_ACT_SECONDS:g} s",
    )


def _cut(machine: EmulatedSmi, layouts: Sequence[Layout]) -> None:
    """Let the emulated machine have these slices."""
    driver = SmiDriver(machine)
    for gpu, layout in enumerate(layouts):
        driver.enable(gpu)
        for placement in creation_order(layout):
            driver.create(gpu, placement.profile, placement.start)


def _changed(
    stage: Stage,
    lab: Lab,
    front: Front,
    machine: EmulatedSmi,
    wanted: Sequence[Layout],
    home: Path,
    *,
    broken: bool,
) -> _Outcome:
    """Change from what the machine has to a wanted layout, under load."""
    sku, note = stage.request.sku, home / "change.json"
    driver = SmiDriver(machine)
    present = layouts_of(sku, driver.instances(), machine.gpus)
    change, ends = plan_change(sku, present, tuple(wanted), "bare")
    specs = {one.name: one for one in make_specs(sku, ends, stage.profile, largest=32)}
    answers: list[Volley] = []
    stop = threading.Event()

    def load() -> None:
        seed = FIRST_SEED
        while not stop.is_set():
            plan = make_plan(stage, _RATE_QPS, seed, round(_RATE_QPS * 2), whole=True)
            answers.append(fire_now(front.url, plan, patience_seconds=15))
            seed += 1

    thread = threading.Thread(target=load)
    thread.start()
    try:
        live = LiveChange(lab, front, driver, specs, note)
        if broken:
            machine.crash_after = len(change.steps) // 4
            try:
                live.run(change)
            except Crash:
                machine.crash_after = None
            kept = change_from_json(parse_json(note.read_text(encoding="utf-8")), sku)
            again = LiveChange(lab, front, driver, specs, note)
            again.clock = live.clock
            again.run(kept)
        else:
            live.run(change)
    finally:
        stop.set()
        thread.join()
    return _Outcome(change, live.clock, _joined(answers))


def _joined(parts: Sequence[Volley]) -> Volley:
    return Volley(
        np.concatenate([part.latency_us for part in parts]),
        np.concatenate([part.status for part in parts]),
        np.concatenate([part.late_us for part in parts]),
    )
