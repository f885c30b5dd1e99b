"""What a replay is made of: the trace, the fleet, the accounts and the contracts that the options name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from divvy.errors import Fault, InputError
from divvy.fleet.budget import Budget, Policy, parse_budget
from divvy.sim.accounts import Claims, claim, equal_shares, shares_by_demand
from divvy.sim.contract_file import parse_contracts
from divvy.sim.contracts import ContractRule, Contracts, Declare
from divvy.sim.engine import Pace
from divvy.sim.overlay import Overlay
from divvy.sim.scenario import Scenario, build_fleet
from divvy.sim.synthetic import RECLAIM_WINDOW, reclaim_trace, synthetic_trace
from divvy.sim.traces import read_trace
from divvy.sim.traces.trace import OnError, Trace
from divvy.units import parse_duration

BUILT_IN: Final = ("synthetic", "reclaim")
_BUILT_IN_GPUS: Final = 64
_BUILT_IN_SHAPE: Final = "8x8"
_OVERLAYS: Final = ("none", "gangs")


@dataclass(frozen=True, slots=True)
class Choice:
    """The options that describe what is replayed, as they were given."""

    trace: str
    form: str
    gpus: int | None
    nodes: str | None
    contract: str
    overlay: str
    checkpoint: str
    on_error: OnError


def build_scenarios(choice: Choice, budgets: list[str]) -> list[Scenario]:
    """Return the scenario that the options describe, once per budget.

    Raises:
        InputError: If an option or a file cannot be used, or two budgets are the same.
    """
    trace, nodes = choice.trace, choice.nodes
    if len(set(budgets)) < len(budgets):
        raise InputError.one(
            "accounts-twice",
            f"{', '.join(budgets)}: a budget is named twice",
            path="--accounts",
            fix="name budgets that differ",
        )
    if trace in BUILT_IN and choice.gpus is None and nodes is None:
        nodes = _BUILT_IN_SHAPE
    fleet = build_fleet(choice.gpus, nodes)
    size = sum(node.gpus for node in fleet)
    if trace == "synthetic":
        recorded = synthetic_trace(size)
    elif trace == "reclaim":
        recorded = reclaim_trace(size)
    else:
        recorded = read_trace(_read(trace, "trace"), choice.form, trace, choice.on_error)
    if choice.overlay not in _OVERLAYS:
        raise InputError.one(
            "overlay-unknown",
            f"no overlay {choice.overlay!r}",
            path="--overlay",
            allowed=", ".join(_OVERLAYS),
        )
    budget, claims = _accounts(budgets[0], recorded)
    first = Scenario(
        recorded,
        fleet,
        budget,
        claims,
        _contracts(choice.contract),
        Pace(read_duration("--checkpoint", choice.checkpoint)),
        Overlay() if choice.overlay == "gangs" else None,
        RECLAIM_WINDOW if trace == "reclaim" else None,
    )
    others = [_accounts(name, recorded) for name in budgets[1:]]
    return [first, *(replace(first, budget=budget, claims=claims) for budget, claims in others)]


def _accounts(choice: str, trace: Trace) -> tuple[Budget, Claims]:
    if choice == "equal":
        return equal_shares(trace, Policy())
    if choice == "by-demand":
        return shares_by_demand(trace, Policy())
    return claim(trace, parse_budget(_text(choice, "budget"), Path(choice).name))


def _contracts(choice: str) -> Contracts:
    if choice in tuple(Declare):
        return Contracts(ContractRule(declare=Declare(choice)))
    return parse_contracts(_text(choice, "contract"), Path(choice).name)


def read_duration(option: str, text: str) -> int:
    """Return the ms of an option.

    Raises:
        InputError: If it is no duration.
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InputError.one("duration", str(error), path=option) from error


def _read(name: str, what: str) -> bytes:
    """Return the bytes of a file.

    Raises:
        InputError: If it cannot be read; the built-in names are listed too.
    """
    try:
        return Path(name).read_bytes()
    except OSError as error:
        allowed = f"a file, or one of {', '.join(BUILT_IN)}" if what == "trace" else "a readable file"
        raise InputError(
            f"the {what} cannot be read",
            [Fault(f"{what}-file", name, error.strerror or str(error), allowed, "check the path")],
        ) from error


def _text(name: str, what: str) -> str:
    try:
        return _read(name, what).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError.one(
            f"{what}-encoding", f"not UTF-8 at byte {error.start}", path=name, allowed="UTF-8"
        ) from error
