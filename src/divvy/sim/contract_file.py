"""Read rules for drawn contracts from TOML: one for everybody and exceptions per account.

declare = "honest"              # honest, all-cap or zero
zero_share = 0.18
[accounts."6214e9"]             # by the trace's own name
declare = "all-cap"
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from divvy.errors import Fault, InputError
from divvy.sim.contracts import ContractRule, Contracts, Declare
from divvy.units import DURATION_HELP, parse_decimal, parse_duration


def _declare(value: Any) -> Declare:
    if value not in tuple(Declare):
        raise ValueError(f"{value!r} is not one of {', '.join(Declare)}")
    return Declare(value)


def _duration(value: Any) -> int:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} has no unit; write {DURATION_HELP}")
    return parse_duration(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is not true or false")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000:
        raise ValueError(f"{value!r} is not a whole number from 1 to 10000")
    return value


def _between(low: float, high: float) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        number = float(parse_decimal(value))
        if not low <= number <= high:
            raise ValueError(f"{number:g} is not from {low:g} to {high:g}")
        return number

    return read


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "declare": _declare,
    "spread": _between(0, 10),
    "shortest": _duration,
    "zero_share": _between(0, 1),
    "not_resumable": _between(0, 1),
    "restart": _flag,
    "limit_mu": _between(-10, 10),
    "limit_sigma": _between(0, 10),
    "authors": _count,
    "zipf": _between(0, 10),
}
assert set(_READERS) == {item.name for item in fields(ContractRule)}  # noqa: S101 - one reader per parameter


def parse_contracts(text: str, source: str) -> Contracts:
    """Return the rules of a file.

    Raises:
        InputError: With every fault of the file and its path.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also lists nested too deep and numbers too long
        raise InputError.one(
            "contract-syntax", f"not valid TOML: {error}", path=source, fix="correct the syntax"
        ) from error
    faults: list[Fault] = []
    accounts = document.pop("accounts", {})
    default = _rule(ContractRule(), document, source, faults)
    exceptions: dict[str, ContractRule] = {}
    if not isinstance(accounts, Mapping):
        faults.append(Fault("contract-type", f"{source}.accounts", "not a table", "[accounts.NAME] tables"))
        accounts = {}
    for name, body in accounts.items():
        at = f"{source}.accounts.{name}"
        if isinstance(body, Mapping):
            exceptions[name] = _rule(default, body, at, faults)
        else:
            faults.append(Fault("contract-type", at, "not a table", "[accounts.NAME]"))
    if faults:
        raise InputError(f"{source} has {len(faults)} fault{'s' if len(faults) > 1 else ''}", faults)
    return Contracts(default, exceptions)


def _rule(base: ContractRule, body: Mapping[str, Any], at: str, faults: list[Fault]) -> ContractRule:
    """Return a rule with some parameters changed, noting every fault."""
    changes: dict[str, Any] = {}
    for name, value in body.items():
        reader = _READERS.get(name)
        if reader is None:
            faults.append(
                Fault(
                    "contract-key",
                    f"{at}.{name}",
                    "unknown parameter",
                    ", ".join(_READERS),
                    "remove or rename it",
                )
            )
            continue
        try:
            changes[name] = reader(value)
        except ValueError as error:
            faults.append(Fault("contract-value", f"{at}.{name}", str(error)))
    return replace(base, **changes)
