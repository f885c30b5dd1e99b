"""Carries out a change step by step, each checked against what is there: it can stop and go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from divvy.adapters.mig.port import Driver, Present
from divvy.errors import ConflictError, EngineError
from divvy.fleet.mig.change import CREATE, DESTROY, DONE, Change, Step, mark_done
from divvy.fleet.mig.layout import check
from divvy.fleet.mig.profile import Layout, Placement, Sku


def layouts_of(sku: Sku, present: Sequence[Present], gpus: int) -> tuple[Layout, ...]:
    """Return the slices of GPUs 0 to `gpus` - 1 as layouts.

    Raises:
        InputError: If what is there is not legal on this SKU: then it is another SKU.
    """
    return tuple(
        check(sku, (Placement(p.start, p.size, p.profile) for p in present if p.gpu == gpu))
        for gpu in range(gpus)
    )


def carry_out(
    driver: Driver,
    change: Change,
    *,
    announce: Callable[[Step], None] = lambda _: None,
    keep: Callable[[Change], None] = lambda _: None,
) -> Change:
    """Do what is pending of a change; return it with its steps done.

    A step whose result is already there counts as done: after a crash the change goes on where it stopped.
    Draining and serving are announced to the caller, who routes queries and starts servers.

    Args:
        driver: What cuts.
        change: The change.
        announce: Told of every step before it is done.
        keep: Given the change after every step, to be written down.

    Raises:
        EngineError: If the driver refuses a step; the steps before it are done and kept.
        ConflictError: If a slice that nobody planned is in the way.
    """
    for position, step in enumerate(change.steps):
        if step.state == DONE:
            continue
        announce(step)
        if step.act == DESTROY:
            _destroy(driver, step)
        elif step.act == CREATE:
            _create(driver, step)
        change = mark_done(change, position)
        keep(change)
    return change


def _there(driver: Driver, step: Step) -> Present | None:
    for present in driver.instances():
        where = (present.gpu, present.start, present.profile)
        if where == (step.gpu, step.placement.start, step.placement.profile):
            return present
    return None


def _destroy(driver: Driver, step: Step) -> None:
    present = _there(driver, step)
    if present is not None:
        driver.destroy(step.gpu, present.instance_id)


def _create(driver: Driver, step: Step) -> None:
    if not driver.enabled(step.gpu):
        driver.enable(step.gpu)
    mine = step.placement
    for present in driver.instances():
        if present.gpu != step.gpu:
            continue
        other = Placement(present.start, present.size, present.profile)
        if other == mine:
            return  # there already: a crash came between the act and its note
        if other.mask & mine.mask:
            there = f"{other.profile}@{other.start} on GPU {step.gpu}"
            raise ConflictError.one(
                "mig-in-the-way",
                f"{there} is in the way of {mine.profile}@{mine.start}",
                fix="it is not part of the change: plan the change again from what is there now",
            )
    made = driver.create(step.gpu, mine.profile, mine.start)
    found = _there(driver, step)
    if found is None:
        raise EngineError.one(
            "mig-misplaced",
            f"instance {made} of GPU {step.gpu} is not where it was asked for ({mine.profile}@{mine.start})",
        )
