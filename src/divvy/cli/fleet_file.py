"""Fleet files: what there is and what is wanted, in one TOML file for `plan`, `apply` and `scenario`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from divvy.cli.slice_inputs import read_file
from divvy.control.paper import Wish
from divvy.errors import DivvyError, Fault, InputError
from divvy.fleet.budget import Budget, read_budget
from divvy.fleet.job import JobSpec
from divvy.fleet.mig.skus import find_sku
from divvy.fleet.node import Node
from divvy.fleet.tenant import Tenants
from divvy.fleet.tenant_file import read_tenants
from divvy.planners.jobs import registry
from divvy.planners.jobs.admission import JOB_ID, JOB_ID_HELP
from divvy.planners.slices.registry import find_planner
from divvy.sim.scenario import build_fleet
from divvy.units import parse_duration

_SECTIONS: Final = ("fleet", "policy", "accounts", "order", "services", "pairings", "jobs")
_FLEET: Final = ("nodes", "topology", "planner", "slices", "dispatcher")
_JOB: Final = (
    "id", "account", "author", "gpus", "min_runtime", "resumable", "restart", "priority", "model", "per_node",
    "time_limit",
)  # fmt: skip
#: The most GPUs, and the highest priority, of a job; as in the API.
_MOST: Final = 1_000_000


@dataclass(frozen=True)
class FleetFile:
    """A fleet file, read and found without fault.

    Attributes:
        wish: Accounts, nodes, jobs, services.
        topology: Files of the interconnect; none: the inside of the nodes is assumed.
        planner: Planner of jobs.
        slices: Planner of slices.
        dispatcher: Dispatch rule.
        document: The file's own words.
    """

    wish: Wish
    topology: tuple[Path, ...]
    planner: str
    slices: str
    dispatcher: str
    document: Mapping[str, Any]


def read_toml(path: Path, option: str) -> dict[str, Any]:
    """Return a TOML file's document.

    Raises:
        InputError: If it is not TOML.
        NotFoundError: If there is no such file.
    """
    try:
        return tomllib.loads(read_file(path, option))
    except (ValueError, RecursionError) as error:  # also lists nested too deep and numbers too long
        raise InputError.one(
            "fleet-syntax", f"not valid TOML: {error}", path=str(path), fix="correct the syntax"
        ) from error


def read_fleet(path: Path, option: str = "--fleet", more: tuple[str, ...] = ()) -> FleetFile:
    """Return a fleet file.

    Args:
        path: The file.
        option: How it was named, for faults.
        more: Sections that the caller reads itself.

    Raises:
        InputError: With every fault of the file.
    """
    document = read_toml(path, option)
    source, faults = path.name, []
    known = (*_SECTIONS, *more)
    faults += [
        Fault("fleet-key", f"{source}.{key}", "unknown section", ", ".join(known), "remove or rename it")
        for key in document
        if key not in known
    ]
    fleet = document.get("fleet", {})
    if not isinstance(fleet, Mapping):
        faults.append(Fault("fleet-type", f"{source}.fleet", "not a table", "[fleet]"))
        fleet = {}
    faults += [
        Fault("fleet-key", f"{source}.fleet.{key}", "unknown setting", ", ".join(_FLEET))
        for key in fleet
        if key not in _FLEET
    ]
    nodes = _nodes(fleet, f"{source}.fleet", faults)
    budget = _budget(document, source, faults)
    tenants = read_tenants(document, source, faults)
    jobs = _jobs(document, source, faults)
    words = {key: _word(fleet, key, default, source, faults) for key, default in _WORDS.items()}
    _names(budget, nodes, tenants, jobs, words, source, faults)
    topology = _topology(fleet, path, faults)
    if faults or budget is None:
        raise InputError(f"{source} has {len(faults)} fault{'s' if len(faults) > 1 else ''}", faults)
    return FleetFile(
        Wish(budget, nodes, jobs, tenants),
        topology,
        words["planner"],
        words["slices"],
        words["dispatcher"],
        document,
    )


_WORDS: Final = {"planner": "budget", "slices": "divvy", "dispatcher": "divvy"}


def _word(fleet: Mapping[str, Any], key: str, default: str, source: str, faults: list[Fault]) -> str:
    value = fleet.get(key, default)
    if isinstance(value, str) and value:
        return value
    faults.append(Fault("fleet-value", f"{source}.fleet.{key}", f"{value!r} is no name"))
    return default


def _nodes(fleet: Mapping[str, Any], at: str, faults: list[Fault]) -> tuple[Node, ...]:
    shape = fleet.get("nodes")
    if not isinstance(shape, str):
        faults.append(Fault("fleet-nodes", f"{at}.nodes", "missing", 'a shape such as "4x8@A100-80GB"'))
        return ()
    try:
        return build_fleet(None, shape)
    except InputError as error:
        faults += [Fault(f.code, f"{at}.nodes", f.message, f.allowed, f.fix) for f in error.faults]
        return ()


def _topology(fleet: Mapping[str, Any], path: Path, faults: list[Fault]) -> tuple[Path, ...]:
    """Return the files of the interconnect; one that is not there is a fault also while nothing needs it."""
    listed, at = fleet.get("topology", []), f"{path.name}.fleet.topology"
    names = listed if isinstance(listed, list) else [listed]
    if not all(isinstance(name, str) and name and "\0" not in name for name in names):
        faults.append(Fault("fleet-value", at, f"{listed!r}", 'names of files, such as ["node1.txt"]'))
        return ()
    places = tuple(path.parent / name for name in names)
    faults += [
        Fault("fleet-topology", at, f"no file {place}", "", "correct the name, or leave it out")
        for place in places
        if not place.is_file()
    ]
    return places


def _budget(document: Mapping[str, Any], source: str, faults: list[Fault]) -> Budget | None:
    try:
        return read_budget(
            {key: document[key] for key in ("policy", "accounts", "order") if key in document}, source
        )
    except InputError as error:
        faults += error.faults
        return None


def _names(
    budget: Budget | None,
    nodes: tuple[Node, ...],
    tenants: Tenants,
    jobs: tuple[JobSpec, ...],
    words: Mapping[str, str],
    source: str,
    faults: list[Fault],
) -> None:
    """Note names that stand for nothing: accounts, kinds of GPU, planners."""
    for account, at in (
        *((s.account, f"{source}.services.{s.name}.account") for s in tenants.services),
        *((j.account, f"{source}.jobs.{j.id}.account") for j in jobs),
    ):
        if budget is not None and account:
            _noted(faults, at, budget.tree.leaf, account)
    models = {node.model for node in nodes}
    for service in tenants.services:
        at = f"{source}.services.{service.name}.sku"
        if service.sku:
            _noted(faults, at, find_sku, service.sku)
        if service.model and nodes and service.model not in models:
            faults.append(Fault("fleet-model", at, f"no node has {service.model}", ", ".join(sorted(models))))
    _noted(faults, f"{source}.fleet.planner", registry.create, words["planner"])
    _noted(faults, f"{source}.fleet.slices", find_planner, words["slices"])


def _noted(faults: list[Fault], at: str, find: Any, name: str) -> None:
    """Look a name up; note the fault under its place in the file where there is no such thing."""
    try:
        find(name)
    except DivvyError as error:
        faults += [Fault(f.code, at, f.message, f.allowed, f.fix) for f in error.faults]


def _jobs(document: Mapping[str, Any], source: str, faults: list[Fault]) -> tuple[JobSpec, ...]:
    listed = document.get("jobs", [])
    if not isinstance(listed, list) or not all(isinstance(body, Mapping) for body in listed):
        faults.append(Fault("fleet-type", f"{source}.jobs", "no list of tables", "[[jobs]]"))
        return ()
    found = [_job(body, f"{source}.jobs[{place}]", faults) for place, body in enumerate(listed)]
    names = [spec.id for spec in found]
    faults += [
        Fault("job-duplicate", f"{source}.jobs", f"job {name!r} is there twice")
        for name in sorted({name for name in names if name and names.count(name) > 1})
    ]
    return tuple(found)


def _job(body: Mapping[str, Any], at: str, faults: list[Fault]) -> JobSpec:
    """Return one job; values that are wrong are replaced, since the faults stop the file anyway."""
    faults += [
        Fault("fleet-key", f"{at}.{key}", "unknown setting", ", ".join(_JOB))
        for key in body
        if key not in _JOB
    ]

    def pick(key: str, default: Any, kind: type, least: int = 0) -> Any:
        value = body.get(key, default)
        fits = isinstance(value, kind) and isinstance(value, bool) is (kind is bool)
        allowed = kind.__name__
        if kind is int:
            allowed = f"a whole number of {least} to {_MOST}"
            fits = fits and least <= value <= _MOST
        elif key == "id":
            allowed, fits = JOB_ID_HELP, fits and JOB_ID.fullmatch(value) is not None
        elif key == "account":
            allowed, fits = "the name of an account", fits and value != ""
        if not fits:
            told = repr(value)[:200] if key in body else "missing"
            faults.append(Fault("job-value", f"{at}.{key}", told, allowed))
            return default
        return value

    def span(key: str) -> int:
        try:
            return parse_duration(str(body.get(key, "0")))
        except ValueError as error:
            faults.append(Fault("job-value", f"{at}.{key}", str(error)))
            return 0

    return JobSpec(
        id=pick("id", "", str),
        account=pick("account", "", str),
        author=pick("author", "somebody", str),
        gpus=pick("gpus", 0, int, 1),
        min_runtime=span("min_runtime"),
        resumable=pick("resumable", True, bool),
        restart=pick("restart", False, bool),
        priority=pick("priority", 0, int, -1_000_000),
        model=pick("model", "", str),
        per_node=pick("per_node", 0, int),
        time_limit=span("time_limit"),
    )
