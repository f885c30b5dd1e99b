"""The work of `divvy plan` and `divvy apply`: a state and wishes into one plan, from files or a store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from divvy.cli.fleet_file import FleetFile, read_fleet, read_toml
from divvy.cli.one_means import means_of, wanted_of
from divvy.control.agenda import Agenda
from divvy.control.codec import restore, state_document
from divvy.control.one_plan import one_plan_document, read_tenancy, tenancy_document
from divvy.control.paper import Wish, differences, endings, settle
from divvy.control.state import FleetState
from divvy.control.tenants import claims
from divvy.errors import Fault, InputError, NotFoundError
from divvy.fleet.event import Event
from divvy.fleet.tenant import Tenants
from divvy.fleet.tenant_file import read_tenants
from divvy.planners.base import Context, JobPlanner
from divvy.planners.jobs import registry
from divvy.planners.pipeline import Means, OnePlan, Tenancy, plan

STATE: Final = "divvy.fleet.state/1"
TENANCY: Final = "tenancy.json"

Told = Callable[[str], None]


@dataclass(frozen=True)
class Base:
    """What a plan is made on.

    Attributes:
        state: Jobs, nodes, budgets; it is the plan's own and may be changed.
        tenancy: What services hold.
        tenants: Services and pairings.
        planner: Planner of jobs, fresh.
        now: Time of the plan, ms.
        source: Where it comes from, for people.
        topology: Files of the interconnect.
        slices: Planner of slices.
        dispatcher: Dispatch rule.
    """

    state: FleetState
    tenancy: Tenancy
    tenants: Tenants
    planner: JobPlanner
    now: int
    source: str
    topology: tuple[Path, ...] = ()
    slices: str = "divvy"
    dispatcher: str = "divvy"


@dataclass(frozen=True)
class Made:
    """A plan and what it was made on.

    Attributes:
        base: The state, its wishes taken in.
        means: What the later planners knew.
        plan: The plan.
        claims: Leases that services begin and end.
        document: ``divvy.plan/1``.
    """

    base: Base
    means: Means
    plan: OnePlan
    claims: tuple[Event, ...]
    document: dict[str, Any]


def state_file(fleet: Path) -> Path:
    """Return where the state of a fleet file is kept: beside it."""
    return fleet.with_name(f"{fleet.stem}.state.json")


def from_files(fleet: Path, state: Path | None, now: int | None) -> Base:
    """Return what a fleet file and its state file say; without a state nothing runs yet.

    Raises:
        InputError: If a file cannot be read, with all its faults.
    """
    file = read_fleet(fleet)
    kept = state or state_file(fleet)
    held, tenancy, last = _kept(kept, file)
    at = max(time.time_ns() // 1_000_000, last) if now is None else now
    if at < last:
        raise InputError.one(
            "plan-time", "the time lies before the last change of the state", path="--at", fix="leave it out"
        )
    ended = list(_ended(held, file.wish, at))
    if ended:  # ids of jobs that are over may be used again
        held = restore(state_document(held.snapshot))
    for event in differences(held.snapshot, file.wish, at):
        held.apply(event)
    planner = registry.create(file.planner)
    return Base(
        held, tenancy, file.wish.tenants, planner, at, str(fleet), file.topology, file.slices, file.dispatcher
    )


def _ended(state: FleetState, wish: Wish, now: int) -> Iterator[Event]:
    """Apply the ends of jobs that a file asks for no more, and yield them."""
    for event in endings(state.snapshot, wish, now):
        state.apply(event)
        yield event


def _kept(path: Path, file: FleetFile) -> tuple[FleetState, Tenancy, int]:
    """Return the state, the tenancy and the time of a state file; where there is none, an empty fleet."""
    if not path.exists():
        return FleetState(file.wish.budget), Tenancy(), 0
    if not path.is_file():  # apply puts a file in its place, and a pipe would be read for ever
        raise InputError.one("state-unreadable", f"{path} is no plain file", path="--state", allowed=STATE)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError.one("state-unreadable", f"{path}: {error}", path="--state", allowed=STATE) from error
    if not isinstance(document, dict) or document.get("schema") != STATE:
        raise InputError.one("state-schema", f"{path} is no state of a fleet", path="--state", allowed=STATE)
    try:
        return restore(document["state"]), read_tenancy(document["tenancy"]), int(document["at"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError.one("state-damaged", f"{path} is damaged: {error!r}", path="--state") from error


def write_state(path: Path, base: Base, tenancy: Tenancy) -> None:
    """Write the state of a fleet file; a reader never sees half of it.

    Raises:
        InputError: If it cannot be written.
    """
    document = {
        "schema": STATE,
        "at": base.now,
        "state": state_document(base.state.snapshot),
        "tenancy": tenancy_document(tenancy),
    }
    draft = path.with_name(f".{path.name}.part")
    try:
        draft.write_text(json.dumps(document, sort_keys=True, indent=1) + "\n", encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise InputError.one("unwritable", f"{path}: {error.strerror}", path="--state") from error


def from_store(database: str, home: Path, services: Path | None) -> Base:
    """Return the newest state of a control plane, read from its store and not disturbed.

    Args:
        database: Its URL.
        home: Its state directory.
        services: A file with ``[[services]]`` and ``[[pairings]]``; None: there are none.

    Raises:
        NotFoundError: If there is no control plane.
    """
    from divvy.adapters.store import archive  # noqa: PLC0415 - plans from files load no SQLAlchemy
    from divvy.adapters.store.database import open_database  # noqa: PLC0415 - same
    from divvy.adapters.store.reader import Reader  # noqa: PLC0415 - same

    store = open_database(database)
    try:
        if store.file is not None and not store.file.exists():
            raise NotFoundError.one(
                "journal-missing",
                f"no control plane at {store.file}",
                path="--home",
                fix="start `divvy up`, name its state directory with --home, or plan a file with --fleet",
            )
        loaded = archive.load(store)
        published = Reader(store).published()
    finally:
        store.dispose()
    name = str(json.loads(published.text)["planner"]) if published is not None else "budget"
    tenancy = _tenancy(home / TENANCY)
    last = max(published.at if published is not None else 0, loaded.state.snapshot.epochs[-1].since)
    now = max(time.time_ns() // 1_000_000, last)
    return Base(loaded.state, tenancy, _tenants(services, loaded.state), registry.create(name), now, database)


def _tenancy(path: Path) -> Tenancy:
    """Return what was planned last for the services of a control plane; nothing where nothing was.

    Raises:
        InputError: If the file cannot be read.
    """
    if not path.exists():
        return Tenancy()
    try:
        return read_tenancy(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        fix = "remove it: the next plan shows all slices and routes as new"
        raise InputError.one("tenancy-unreadable", f"{path}: {error}", path="--home", fix=fix) from error


def _tenants(services: Path | None, state: FleetState) -> Tenants:
    if services is None:
        return Tenants()
    faults: list[Fault] = []
    tenants = read_tenants(read_toml(services, "--services"), services.name, faults)
    tree = state.snapshot.tree
    leaves = [tree.paths[leaf] for leaf in tree.leaves]
    faults += [
        Fault(
            "account-unknown",
            f"{services.name}.{one.name}.account",
            f"no account {one.account!r}",
            ", ".join(leaves),
        )
        for one in tenants.services
        if one.account not in leaves
    ]
    if faults:
        raise InputError(f"{services.name} has {len(faults)} fault{'s' if len(faults) > 1 else ''}", faults)
    return tenants


def make(base: Base, told: Told = lambda _: None) -> Made:
    """Return the plan of the whole fleet; the state of the base takes in the leases that services ask for."""
    snapshot, state = base.state.snapshot, base.state
    means = means_of(base.tenants, snapshot.nodes.node, base.topology, base.slices, base.dispatcher, told)
    wanted = wanted_of(base.tenants, means.curves)
    for event in Agenda().due(snapshot, base.now):
        state.apply(event)
    asked: list[Event] = []
    if base.tenants.services:
        for event in claims(snapshot, base.tenants, wanted, base.now):
            state.apply(event)
            asked.append(event)
        for event in settle(snapshot, base.now):
            state.apply(event)
    found = plan(base.planner, snapshot, Context(base.now), base.tenancy, means)
    document = one_plan_document(found, snapshot, base.tenancy, means, wanted)
    return Made(base, means, found, tuple(asked), {**document, "source": base.source})
