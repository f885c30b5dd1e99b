"""The budget document: the policy's settings and the account tree, as people write them in TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from divvy.errors import Fault, InputError
from divvy.fleet.account import AccountSpec, AccountTree, build_tree, validate
from divvy.fleet.account_file import in_order, order_of, percent, read_accounts, rules_of
from divvy.units import (
    DAY,
    DURATION_HELP,
    HOUR,
    MINUTE,
    SECOND,
    format_duration,
    parse_decimal,
    parse_duration,
    write_duration,
)


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of the budget policy; every default is explained in docs/explanation/budgets.md.

    Attributes:
        lookback: Length of the sliding window, ms.
        taper: Last part of the window, over which old usage fades linearly, ms.
        floor: phi: no account with demand is pushed below this part of its present share.
        max_min_runtime: Cap on a job's declared minimum runtime, ms.
        margin: A victim's balance must exceed the requester's by this much (entry charge included).
        band: Width of an over-service band: victims in one band count as equally over-served.
        patience: How long a job waits for devices to come free by themselves before it takes some back, ms.
        debug_patience: The same for debug jobs, ms.
        debug_max_gpus: Largest job that the debug rule favours.
        debug_max_min_runtime: Longest declared minimum runtime that the debug rule favours, ms.
        debug_gpu_time_per_day: Declared GPU-time per author and day under the debug rule, GPU-ms.
        reclaim_from_owed: Whether an account whose own balance is below 1 may be a victim.
        protection_price: What a protected GPU-hour past the first costs, in ordinary ones; 1: no price.
        protection_cap: k: protected devices of an account are at most k x its share of the fleet; 0: no cap.
        unallocated_backoff: How long an unallocated job rests after it gave way once, ms; doubles with each
            further time, up to 64-fold; 0: not at all.
        usage_half_life: Age at which past usage counts half, ms; 0: it counts whole throughout the window.
        forgiveness: Age beyond which having had more than the share is forgiven, ms; 0: never.
        fault_clears_after: How long a node must be quiet after a fault that was not fatal before it comes
            back by itself, ms; 0: only when it is reported well.
        unallocated_lifetime: Age at which an unallocated job is ended, ms since its submission; 0: never.
    """

    lookback: int = 7 * DAY
    taper: int = DAY
    floor: float = 0.7
    max_min_runtime: int = 8 * HOUR
    margin: float = 0.2
    band: float = 0.1
    patience: int = 5 * MINUTE
    debug_patience: int = 20 * SECOND
    debug_max_gpus: int = 8
    debug_max_min_runtime: int = 15 * MINUTE
    debug_gpu_time_per_day: int = 16 * HOUR
    reclaim_from_owed: bool = False
    protection_price: float = 1.0
    protection_cap: float = 0.0
    unallocated_backoff: int = 0
    unallocated_lifetime: int = 0
    fault_clears_after: int = 0
    usage_half_life: int = 0
    forgiveness: int = 0

    def to_document(self) -> dict[str, Any]:
        """Return the settings in the form of the TOML file."""
        document: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            document[item.name] = write_duration(value) if item.name in _DURATIONS else value
        return document


_DURATIONS: Final = (
    "lookback",
    "taper",
    "patience",
    "debug_patience",
    "max_min_runtime",
    "debug_max_min_runtime",
    "debug_gpu_time_per_day",
    "unallocated_backoff",
    "unallocated_lifetime",
    "fault_clears_after",
    "usage_half_life",
    "forgiveness",
)
#: Settings that are numbers, and the least that they may be where that is not 0.
_LEAST: Final = {"protection_price": 1}
_UNIT_RANGE: Final = ("floor",)


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget document, read and found without fault."""

    policy: Policy
    tree: AccountTree

    def to_document(self) -> dict[str, Any]:
        """Return the document in the nested form of the TOML file, every default spelled out."""
        accounts: dict[str, Any] = {}
        for spec in self.tree.specs:
            level = accounts
            *above, name = spec.path.split(".")
            for step in above:
                level = level[step]
            level[name] = {"share": percent(spec.share)}
            if spec.owners:
                level[name]["owners"] = list(spec.owners)
            level[name].update({engine: list(names) for engine, names in spec.aliases})
            level[name].update(rules_of(spec))
        order = order_of(self.tree.specs)
        document = {"policy": self.policy.to_document(), "accounts": accounts}
        return document | {"order": order} if order is not None else document


def parse_budget(text: str, source: str = "budget") -> Budget:
    """Read a budget file.

    Raises:
        InputError: With every fault of the file and its path, such as ``budget.vision.share: 120 > 100``.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also lists nested too deep and numbers too long
        raise InputError.one(
            "budget-syntax", f"not valid TOML: {error}", path=source, fix="correct the syntax"
        ) from error
    return read_budget(document, source)


def read_budget(document: Mapping[str, Any], source: str = "budget") -> Budget:
    """Read a budget from its parsed document (TOML or JSON).

    Raises:
        InputError: With every fault and its path.
    """
    faults: list[Fault] = []
    unknown = sorted(set(document) - {"policy", "accounts", "order"})
    faults += [
        Fault("budget-key", f"{source}.{key}", "unknown section", "policy, accounts", "remove or rename it")
        for key in unknown
    ]
    policy = _read_policy(document.get("policy", {}), f"{source}.policy", faults)
    accounts = document.get("accounts", {})
    specs: list[AccountSpec] = []
    if isinstance(accounts, Mapping):
        specs = list(read_accounts(accounts, "", source, faults))
        specs = in_order(specs, document.get("order"), f"{source}.order", faults)
    else:
        faults.append(Fault("budget-type", f"{source}.accounts", "not a table", "[accounts.NAME] tables"))
    faults += validate(specs, source)
    if not specs:
        faults.append(
            Fault(
                "accounts-empty",
                f"{source}.accounts",
                "no account",
                "at least one [accounts.NAME] with a share",
            )
        )
    if faults:
        raise InputError(f"{source} has {len(faults)} fault{'s' if len(faults) > 1 else ''}", faults)
    return Budget(policy, build_tree(specs))


def _read_policy(raw: Any, at: str, faults: list[Fault]) -> Policy:
    if not isinstance(raw, Mapping):
        faults.append(Fault("budget-type", at, "not a table", "[policy]"))
        return Policy()
    settings: dict[str, Any] = {}
    defaults = Policy()
    known = {item.name: item for item in fields(Policy)}
    for key, value in raw.items():
        if key not in known:
            faults.append(
                Fault("policy-key", f"{at}.{key}", "unknown setting", ", ".join(known), "remove or rename it")
            )
            continue
        try:
            settings[key] = _read_setting(key, value, type(getattr(defaults, key)))
        except ValueError as error:
            faults.append(Fault("policy-value", f"{at}.{key}", str(error)))
    # A file that only shortens the window asks for no taper longer than it.
    settings.setdefault("taper", min(defaults.taper, settings.get("lookback", defaults.lookback)))
    policy = Policy(**settings)
    if policy.lookback <= 0:
        faults.append(Fault("policy-value", f"{at}.lookback", "must be positive", 'such as "7d"'))
    if policy.taper > policy.lookback:
        faults.append(
            Fault(
                "policy-value",
                f"{at}.taper",
                "longer than the lookback",
                f"at most {format_duration(policy.lookback)}",
            )
        )
    if policy.forgiveness >= policy.lookback:
        most = f"less than {format_duration(policy.lookback)}, or 0"
        faults.append(Fault("policy-value", f"{at}.forgiveness", "not within the lookback", most))
    return policy


def _read_setting(key: str, value: Any, kind: type) -> object:
    if key in _DURATIONS:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} has no unit; write {DURATION_HELP}")
        return parse_duration(value)
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError(f"{value!r} is not true or false")
        return value
    number = parse_decimal(value)
    if number < _LEAST.get(key, 0):
        raise ValueError(f"{number} < {_LEAST.get(key, 0)}")
    if key in _UNIT_RANGE and number > 1:
        raise ValueError(f"{number} > 1; it is a fraction from 0 to 1")
    if kind is int:
        if number != number.to_integral_value():
            raise ValueError(f"{number} is not a whole number")
        return int(number)
    return float(number)
