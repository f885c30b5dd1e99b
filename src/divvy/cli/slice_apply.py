"""The work of `divvy slices apply`: what would change, at what price, and doing it step by step."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from divvy.adapters.mig.carry_out import carry_out, layouts_of
from divvy.adapters.mig.emulator import EmulatedSmi
from divvy.adapters.mig.nvml import open_nvml
from divvy.adapters.mig.port import Driver
from divvy.adapters.mig.smi import SmiDriver
from divvy.cli.render import Output, Span, seconds
from divvy.cli.slice_inputs import load_sku, read_file
from divvy.errors import ConflictError, InputError, UnavailableError
from divvy.fleet.mig.change import Change, Step, change_from_json, change_to_json, plan_change
from divvy.fleet.mig.emit import draw
from divvy.fleet.mig.layout import check
from divvy.fleet.mig.profile import Layout, Sku
from divvy.units import parse_json

_PLANS: Final = "the JSON of divvy slices plan or pack"


def read_document(text: str, path: str) -> dict[str, Any]:
    """Return the JSON object of a plan or a packing.

    Raises:
        InputError: If it is no such document.
    """
    try:
        document = parse_json(text)
        schema = document["schema"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError.one("plan-file", f"not a plan: {error}", path=path, allowed=_PLANS) from error
    if schema not in {"divvy.slices.plan/1", "divvy.slices.pack/1"}:
        raise InputError.one("plan-file", f"{schema!r} is no plan", path=path, allowed=_PLANS)
    return dict(document)


def read_plan(text: str, path: str, table: Path | None = None) -> tuple[Sku, tuple[Layout, ...]]:
    """Return the SKU and the layouts of a plan or a packing (JSON of `divvy slices plan` or `pack`).

    Args:
        text: The JSON.
        path: Where it comes from, for the faults.
        table: File to learn the SKU from, for one that is not known here.

    Raises:
        InputError: If it is no such document, its GPUs are not 0, 1, 2, ..., or a layout is not legal.
    """
    document = read_document(text, path)
    try:
        rows = sorted((_whole(row["gpu"]), row["slices"]) for row in document["layout"])
        name = str(document["sku"])
        wanted = [[(str(s["profile"]), _whole(s["start"])) for s in slices] for _, slices in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError.one("plan-file", f"not a plan: {error}", path=path, allowed=_PLANS) from error
    gpus = [gpu for gpu, _ in rows]
    if not gpus or gpus != list(range(len(gpus))):
        raise InputError.one(
            "plan-gpus", f"it has the GPUs {gpus}", path=path, allowed="0, 1, 2, ..., each once"
        )
    sku = load_sku(name, table)
    return sku, tuple(check(sku, [sku.at(*slice_) for slice_ in slices]) for slices in wanted)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    return value


def open_driver(kind: str, emulate: Path | None, sku: Sku, gpus: int) -> tuple[Driver, EmulatedSmi | None]:
    """Return what cuts: nvidia-smi, NVML, or the emulator in the state of a file (made if it is not there).

    Raises:
        InputError: If the state is damaged.
        UnavailableError: If NVML is not installed.
    """
    if emulate is not None:
        if not emulate.exists():
            machine = EmulatedSmi(sku, gpus)
        else:
            try:
                state = parse_json(read_file(emulate, "--emulate"))
                machine = EmulatedSmi.from_json(state, sku)
            except (ValueError, KeyError, TypeError) as error:
                raise InputError.one("emulator-state", f"damaged: {error}", path=str(emulate)) from error
        return SmiDriver(machine), machine
    if kind == "nvml":
        return open_nvml(), None
    if kind != "smi":
        raise InputError.one("mig-driver", f"{kind!r}", path="--driver", allowed="smi, nvml")
    return SmiDriver(), None


def run_apply(
    plan: Path,
    table: Path | None,
    driver_kind: str,
    emulate: Path | None,
    state: Path,
    change_kind: str,
    *,
    yes: bool,
    output: Output,
) -> None:
    """Show the change to a plan, and carry it out if that was said; a change that stopped goes on.

    Raises:
        ConflictError: If the machine has fewer GPUs than the plan, or a stopped change is of another plan.
        EngineError: If the driver refuses a step.
    """
    sku, wanted = read_plan(read_file(plan, "PLAN"), str(plan), table)
    driver, machine = open_driver(driver_kind, emulate, sku, len(wanted))
    if machine is not None and machine.gpus < len(wanted):
        raise ConflictError.one(
            "apply-gpus", f"the plan has {len(wanted)} GPUs, the machine has {machine.gpus}"
        )
    change, resumed = _change(sku, driver, wanted, state, change_kind)
    document = {
        **change_to_json(change),
        "schema": "divvy.slices.apply/1",
        "emulator": machine is not None,
        "resumed": resumed,
        "applied": False,
    }
    if not yes or not change.pending:
        document["applied"] = yes
        if yes:
            state.unlink(missing_ok=True)
        if not output.machine(document, [step.text for step in change.pending]):
            _show(output, sku, change, wanted, machine is not None, resumed=resumed)
        return

    done = _carry_out(driver, change, machine, emulate, state, output)
    document |= {"steps": change_to_json(done)["steps"], "applied": True}
    if not output.machine(document, []):
        where = " on the EMULATOR" if machine is not None else ""
        output.screen.line(Span(f"done{where}: {len(done.steps)} steps", "green"))


def _carry_out(
    driver: Driver,
    change: Change,
    machine: EmulatedSmi | None,
    emulate: Path | None,
    state: Path,
    output: Output,
) -> Change:
    """Do the steps, writing each down; the file of a change goes away when it is done."""

    def keep(now: Change) -> None:
        if machine is not None and emulate is not None:
            machine.save(emulate)
        _write(state, now)

    def announce(step: Step) -> None:
        if output.plain:
            output.screen.line(step.text)

    try:
        for path in (state, emulate):
            if path is not None:  # what cannot be written down is not begun
                _draft(path).touch()
                _draft(path).unlink()
        done = carry_out(driver, change, announce=announce, keep=keep)
        state.unlink(missing_ok=True)
    except OSError as error:
        text = f"{error.filename or state}: {error.strerror}"
        raise UnavailableError.one("unwritable", text, path="--state, --emulate") from error
    return done


def _change(
    sku: Sku, driver: Driver, wanted: tuple[Layout, ...], state: Path, kind: str
) -> tuple[Change, bool]:
    """Return what is to be done, and whether it goes on from a change that stopped."""
    now = layouts_of(sku, driver.instances(), len(wanted))
    fresh, _ = plan_change(sku, now, wanted, kind)
    if not state.exists():
        return fresh, False
    try:
        kept = change_from_json(parse_json(read_file(state, "--state")), sku)
    except ValueError as error:
        raise InputError.one("change-file", f"damaged: {error}", path=str(state)) from error
    made = {(s.gpu, s.placement) for s in kept.steps if s.act == "create"}
    stay = {(gpu, placement) for gpu, slices in enumerate(kept.kept) for placement in slices}
    goal = [sorted(p.profile for g, p in made | stay if g == gpu) for gpu in range(len(kept.kept))]
    if sorted(goal) != sorted(sorted(p.profile for p in layout) for layout in wanted):
        raise ConflictError.one(
            "change-other",
            f"{state} holds a change to another plan that stopped half-way",
            fix="finish it with its own plan, or remove the file to plan from what is there now",
        )
    return kept, True


def _write(path: Path, change: Change) -> None:
    """Write a change down, whole or not at all."""
    _draft(path).write_text(json.dumps(change_to_json(change), indent=1) + "\n", encoding="utf-8")
    _draft(path).replace(path)


def _draft(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def _show(
    output: Output,
    sku: Sku,
    change: Change,
    wanted: tuple[Layout, ...],
    emulated: bool,
    *,
    resumed: bool,
) -> None:
    screen = output.screen
    if emulated:
        screen.line(Span("EMULATOR: no GPU is touched", "yellow"))
    if not change.pending:
        screen.line("nothing to change")
        return
    if resumed:
        screen.line(Span("a change that stopped half-way goes on", "yellow"))
    for gpu, layout in enumerate(wanted):
        screen.line(f"  wanted {gpu}  {draw(sku, layout)}")
    for step in change.pending:
        screen.line(f"  {step.text}")
    kept = sum(len(stay) for stay in change.kept)
    low, high = change.seconds
    screen.line(
        f"{seconds(low)} to {seconds(high)}, {change.lost_gpc_seconds:.0f} compute-slice seconds"
        f" out of service; {kept} slices keep serving"
    )
    if sys.stdout.isatty():
        screen.line(Span("--yes carries it out", "dim"))
