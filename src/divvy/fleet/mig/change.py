"""From the slices that are there to those that are wanted: what stays, the price, safe steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from divvy.errors import InputError
from divvy.fleet.mig.layout import check, creation_order, multiset, place
from divvy.fleet.mig.profile import Layout, Placement, Sku

#: Reported seconds of a change: bare, with a model server's restart, through a Kubernetes manager.
COSTS: Final[Mapping[str, tuple[float, float]]] = {
    "bare": (6.0, 6.0),
    "server": (60.0, 70.0),
    "kubernetes": (180.0, 300.0),
}

DRAIN, DESTROY, CREATE, SERVE = "drain", "destroy", "create", "serve"
PENDING, DONE = "pending", "done"


@dataclass(frozen=True, slots=True)
class Step:
    """One act on one slice.

    Attributes:
        act: ``drain`` (stop sending, let it finish), ``destroy``, ``create`` or ``serve`` (start the server).
        gpu: Index.
        placement: The slice.
        state: ``pending`` or ``done``.
    """

    act: str
    gpu: int
    placement: Placement
    state: str = PENDING

    @property
    def text(self) -> str:
        """Return the step as a line."""
        return f"gpu {self.gpu}: {self.act} {self.placement.profile}@{self.placement.start}"


@dataclass(frozen=True, slots=True)
class Change:
    """An ordered list of steps, with its price.

    Attributes:
        sku: Name of the SKU.
        steps: In order: GPU after GPU, so that the others keep serving.
        kept: Slices that stay and keep serving, by GPU.
        gpcs_idle: Compute slices out of service, by GPU, while that GPU is changed.
        seconds: Reported range for the whole change, one GPU after the other.
        lost_gpc_seconds: Compute-slice seconds out of service, by the upper end of the range.
    """

    sku: str
    steps: tuple[Step, ...]
    kept: tuple[tuple[Placement, ...], ...]
    gpcs_idle: tuple[int, ...]
    seconds: tuple[float, float]
    lost_gpc_seconds: float

    @property
    def pending(self) -> tuple[Step, ...]:
        """Return what is still to be done."""
        return tuple(step for step in self.steps if step.state == PENDING)


@lru_cache(maxsize=8_192)  # plans of a fleet compare the same few layouts again and again
def align(sku: Sku, now: Layout, wanted: Layout) -> Layout:
    """Return a layout with the wanted slices that keeps as many of the present ones in place as can be."""
    if now == wanted:
        return wanted
    target = dict(multiset(wanted))
    common = [placement for placement in now if placement.profile in target]
    same = sum(sku.profile(placement.profile).gpcs for placement in now if placement in wanted)
    best: tuple[int, Layout] = (same, wanted)  # as planned, unless other starts keep more
    for mask in range(1 << len(common)):
        kept = [placement for i, placement in enumerate(common) if mask >> i & 1]
        rest = dict(target)
        for placement in kept:
            rest[placement.profile] = rest.get(placement.profile, 0) - 1
        if min(rest.values(), default=0) < 0:
            continue
        worth = sum(sku.profile(placement.profile).gpcs for placement in kept)
        if worth <= best[0]:
            continue
        layout = place(sku, {name: count for name, count in rest.items() if count}, kept)
        if layout is not None:
            best = worth, layout
    return best[1]


def plan_change(
    sku: Sku, now: Sequence[Layout], wanted: Sequence[Layout], kind: str = "server"
) -> tuple[Change, tuple[Layout, ...]]:
    """Return the change from the present layouts to the wanted ones, and the layouts that it ends with.

    GPUs are changed one after the other; on each, slices that leave are drained and destroyed first, then
    large ones are created before small ones. Slices in both layouts are not touched: wanted ones are moved
    to other starts where that keeps a slice in place. Wanted layouts go to the GPUs that resemble them most.

    Raises:
        InputError: If a layout is not legal, or the numbers of GPUs differ.
    """
    if kind not in COSTS:
        raise InputError.one("change-kind", f"{kind!r}", path="--change", allowed=", ".join(COSTS))
    if len(now) != len(wanted):
        raise InputError.one("change-gpus", f"{len(now)} GPUs are there, {len(wanted)} are planned")
    present = [check(sku, layout) for layout in now]
    targets = _assign(sku, present, [check(sku, layout) for layout in wanted])
    steps: list[Step] = []
    kept, idle = [], []
    for gpu, (old, new) in enumerate(zip(present, targets, strict=True)):
        stay = tuple(placement for placement in old if placement in new)
        gone = [placement for placement in old if placement not in new]
        fresh = creation_order(placement for placement in new if placement not in old)
        steps += [Step(DRAIN, gpu, placement) for placement in gone]
        steps += [Step(DESTROY, gpu, placement) for placement in gone]
        steps += [Step(CREATE, gpu, placement) for placement in fresh]
        steps += [Step(SERVE, gpu, placement) for placement in fresh]
        kept.append(stay)
        idle.append(sum(sku.profile(p.profile).gpcs for p in (gone or fresh)))
    low, high = COSTS[kind]
    touched = sum(1 for old, new in zip(present, targets, strict=True) if old != new)
    lost = high * sum(idle)
    change = Change(sku.name, tuple(steps), tuple(kept), tuple(idle), (low * touched, high * touched), lost)
    return change, tuple(targets)


def _assign(sku: Sku, now: list[Layout], wanted: list[Layout]) -> list[Layout]:
    """Return the wanted layouts in the order of the GPUs, each aligned, most kept slices first."""
    pairs = sorted(
        (
            -sum(sku.profile(p.profile).gpcs for p in old if p in align(sku, old, new)),
            gpu,
            index,
        )
        for gpu, old in enumerate(now)
        for index, new in enumerate(wanted)
    )
    answer: dict[int, Layout] = {}
    used: set[int] = set()
    for _, gpu, index in pairs:
        if gpu not in answer and index not in used:
            answer[gpu] = align(sku, now[gpu], wanted[index])
            used.add(index)
    return [answer[gpu] for gpu in range(len(now))]


def mark_done(change: Change, position: int) -> Change:
    """Return the change with one step done."""
    steps = list(change.steps)
    steps[position] = replace(steps[position], state=DONE)
    return replace(change, steps=tuple(steps))


def change_to_json(change: Change) -> dict[str, Any]:
    """Return the change as JSON can hold it, with the state of every step: it can be resumed from there."""
    return {
        "schema": "divvy.slices.change/1",
        "sku": change.sku,
        "seconds": list(change.seconds),
        "lost_gpc_seconds": change.lost_gpc_seconds,
        "gpcs_idle": list(change.gpcs_idle),
        "kept": [[{"profile": p.profile, "start": p.start} for p in stay] for stay in change.kept],
        "steps": [
            {
                "act": step.act,
                "gpu": step.gpu,
                "profile": step.placement.profile,
                "start": step.placement.start,
                "state": step.state,
            }
            for step in change.steps
        ],
    }


def change_from_json(document: Mapping[str, Any], sku: Sku) -> Change:
    """Return the change that `change_to_json` wrote.

    Raises:
        InputError: If the document is not such a change, or not of this SKU.
    """
    if not isinstance(document, Mapping):
        raise InputError.one("change-file", f"not a change of {sku.name}", allowed="divvy.slices.change/1")
    if document.get("schema") != "divvy.slices.change/1" or document.get("sku") != sku.name:
        raise InputError.one("change-file", f"not a change of {sku.name}", allowed="divvy.slices.change/1")
    try:
        steps = tuple(
            Step(s["act"], int(s["gpu"]), sku.at(s["profile"], int(s["start"])), s["state"])
            for s in document["steps"]
        )
        kept = tuple(tuple(sku.at(p["profile"], p["start"]) for p in stay) for stay in document["kept"])
        low, high = document["seconds"]
        idle = tuple(int(count) for count in document["gpcs_idle"])
        return Change(sku.name, steps, kept, idle, (low, high), float(document["lost_gpc_seconds"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError.one("change-file", f"not a change of {sku.name}: {error}") from error
