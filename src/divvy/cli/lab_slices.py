"""The work of `divvy lab slices`: servers of unequal speed on loopback, and the file that `serve` reads."""

from __future__ import annotations

import math
import os
import signal
import sys
from dataclasses import dataclass
from typing import Any, Final

from divvy.adapters.lab.lab import Lab, Running
from divvy.adapters.lab.spec import CPU, WORKS, SliceSpec, slice_name, times_of
from divvy.adapters.waiting import Waiter
from divvy.cli.lab_backends import Written, write_for_lab
from divvy.cli.lab_layout import read_layout
from divvy.cli.render import Column, Output, Span, number
from divvy.cli.slice_inputs import load_profile
from divvy.errors import Fault, InputError
from divvy.fleet.mig.profile import Layout, Sku
from divvy.perf.latency import INFEASIBLE, LatencyProfile

#: Of each processor, the share that slices under quotas may use together: the rest is the servers' own.
_USABLE: Final = 0.7
_FOREVER: Final = 3600.0
_MOST_SCALE: Final = 1e4


@dataclass(frozen=True, slots=True)
class Setting:
    """What the lab is to be: layout, profile, SKU, kind of work, factor on all times, largest batch."""

    layout: str
    profile: str
    sku: str
    work: str
    scale: float
    largest: int


def make_specs(
    sku: Sku,
    layouts: tuple[Layout, ...],
    profile: LatencyProfile,
    *,
    work: str = "sleep",
    scale: float = 1.0,
    largest: int = 64,
) -> tuple[SliceSpec, ...]:
    """Return a server per slice of the layouts, GPU after GPU.

    Raises:
        InputError: If the kind of work or the factor is none, or a slice size was not measured.
    """
    faults = []
    if work not in WORKS:
        faults.append(Fault("lab-work", "--work", f"{work!r}", ", ".join(WORKS)))
    if not 0 < scale <= _MOST_SCALE or not math.isfinite(scale):
        faults.append(Fault("lab-scale", "--scale", f"{scale:g}", f"above 0, at most {_MOST_SCALE:g}"))
    sizes = sorted({sku.profile(p.profile).gpcs for layout in layouts for p in layout})
    missing = [size for size in sizes if size not in profile.sizes]
    if missing:
        text = f"{profile.model} has no {', '.join(f'{size}g' for size in missing)}"
        faults.append(Fault("lab-profile", "--profile", text, ", ".join(f"{s}g" for s in profile.sizes)))
    if not sizes:
        faults.append(Fault("lab-layout", "--layout", "no slice in it"))
    if faults:
        raise InputError("the lab cannot be made so", faults)
    share = _USABLE * (os.cpu_count() or 1) / (len(layouts) * sku.compute_slices)
    specs = []
    for gpu, layout in enumerate(layouts):
        for placement in layout:
            gpcs = sku.profile(placement.profile).gpcs
            name = slice_name(gpu, placement.profile, placement.start)
            where = (name, gpu, placement.profile, placement.start, gpcs, profile.model)
            if work == CPU:
                times = _equal_work(profile, gpcs, largest, scale, share)
                specs.append(SliceSpec(*where, times, work, min(1.0, gpcs * share)))
            else:
                specs.append(SliceSpec(*where, times_of(profile, gpcs, largest, scale), work))
    return tuple(specs)


def _equal_work(
    profile: LatencyProfile, gpcs: int, largest: int, scale: float, share: float
) -> tuple[int, ...]:
    """Return processor time by batch: the same on every slice, so that the quota alone makes them unequal.

    It is what the largest slice does in the profile's time; what does not fit on this slice stays so.
    """
    top = max(profile.sizes)
    work = times_of(profile, top, largest, scale * min(1.0, top * share))
    fits = times_of(profile, gpcs, largest, 1.0)
    return tuple(INFEASIBLE if fit == INFEASIBLE else time for time, fit in zip(work, fits, strict=True))


def lab_document(setting: Setting, running: tuple[Running, ...]) -> dict[str, Any]:
    """Return the document ``divvy.lab.slices/1``."""
    return {
        "schema": "divvy.lab.slices/1",
        "work": setting.work,
        "emulated": setting.work != CPU,
        "scale": setting.scale,
        "profile": setting.profile,
        "slices": [
            {
                "name": one.spec.name,
                "gpu": one.spec.gpu,
                "profile": one.spec.profile,
                "start": one.spec.start,
                "gpcs": one.spec.gpcs,
                "model": one.spec.model,
                "url": one.url,
                "pid": one.pid,
                "quota": one.spec.quota,
            }
            for one in running
        ],
    }


def run_lab(
    setting: Setting, port: int, seconds: float, written: Written, output: Output, *, apart: bool
) -> None:
    """Start the servers, say where they are, and wait for the end.

    Raises:
        InputError: If the lab cannot be made so.
        UnavailableError: If quotas or Triton are asked for and cannot be had.
        EngineError: If a server does not come up.
    """
    profile = load_profile(setting.profile)
    sku, layouts = read_layout(setting.layout, setting.sku)
    specs = make_specs(sku, layouts, profile, work=setting.work, scale=setting.scale, largest=setting.largest)
    waiter = Waiter((), -1)
    waiter.stop_on(signal.SIGTERM, signal.SIGINT)
    try:
        with Lab() as lab:
            ports = [port + i for i in range(len(specs))] if port else []
            running = lab.start(specs, apart=apart, ports=ports)
            write_for_lab(written, running, setting.profile, profile, setting.scale, setting.largest)
            _tell(output, setting, running)
            sys.stdout.flush()
            waiter.rest(seconds or _FOREVER)
            while not seconds and not waiter.stopped:
                waiter.rest(_FOREVER)
    finally:
        waiter.close()


def _tell(output: Output, setting: Setting, running: tuple[Running, ...]) -> None:
    if output.machine(lab_document(setting, running), [one.url for one in running]):
        return
    screen = output.screen
    what = (
        "work under quotas: emulated slices, real work"
        if setting.work == CPU
        else f"EMULATED: the table's time x {setting.scale:g} is slept"
    )
    screen.line(
        Span(f"{len(running)} slices", "bold"), f" of {running[0].spec.model}; ", Span(what, "yellow")
    )
    batches = (1, min(8, setting.largest), setting.largest)
    columns = [
        Column("SLICE"),
        Column("URL"),
        *(Column(f"BATCH {b} MS", right=True) for b in dict.fromkeys(batches)),
        Column("PID", right=True, drop=1),
    ]
    rows = []
    for one in running:
        times = one.spec.times_us
        cells = tuple(
            "-" if times[b] == INFEASIBLE else number(times[b] / 1e3 / (one.spec.quota or 1.0))
            for b in dict.fromkeys(batches)
        )
        rows.append((one.spec.name, one.url, *cells, str(one.pid)))
    screen.table(columns, rows)
    screen.line(Span("Ctrl-C ends them", "dim"))
