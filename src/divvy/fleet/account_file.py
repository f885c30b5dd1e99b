"""Accounts as people write them in a budget file, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

from divvy.errors import Fault
from divvy.fleet.account import AccountSpec
from divvy.units import SECOND, parse_decimal

ENGINES: Final = ("slurm", "ray", "local")
_LIMITS: Final = ("max_gpus", "author_max_gpus")
SETTINGS: Final = ("share", "shares", "owners", "members", *_LIMITS, *ENGINES)
_LARGEST_LIMIT: Final = 1_000_000
_LAST_MS: Final = 32_503_680_000 * SECOND  # the year 3000
_DATE_HELP: Final = "a date such as 2027-01-01 or 2027-01-01T06:00:00Z (UTC where it says nothing)"


def read_accounts(
    table: Mapping[str, Any], above: str, source: str, faults: list[Fault]
) -> Iterator[AccountSpec]:
    """Yield the accounts of nested tables, parents first, and note every fault of their settings."""
    for name, body in table.items():
        path = f"{above}.{name}" if above else name
        at = f"{source}.{path}"
        if not isinstance(body, Mapping):
            faults.append(Fault("budget-type", at, "not a table", f"[accounts.{path}] with a share"))
            continue
        children = {key: value for key, value in body.items() if isinstance(value, Mapping)}
        settings = {key: value for key, value in body.items() if key not in children}
        yield _read_account(path, settings, at, faults)
        yield from read_accounts(children, path, source, faults)


def _read_account(path: str, settings: Mapping[str, Any], at: str, faults: list[Fault]) -> AccountSpec:
    share = Decimal(0)
    if "share" not in settings:
        faults.append(
            Fault("share-missing", f"{at}.share", "missing", "a percentage of the parent", "add share = N")
        )
    else:
        try:
            share = parse_decimal(settings["share"])
        except ValueError as error:
            faults.append(Fault("share-type", f"{at}.share", str(error), "0 to 100"))
    faults += [
        Fault("account-key", f"{at}.{key}", "unknown setting", ", ".join(SETTINGS), "remove or rename it")
        for key in settings
        if key not in SETTINGS
    ]
    return AccountSpec(
        path,
        share,
        _names(settings.get("owners", []), f"{at}.owners", faults),
        tuple((key, _names(settings[key], f"{at}.{key}", faults)) for key in ENGINES if key in settings),
        _names(settings.get("members", []), f"{at}.members", faults),
        _limit(settings.get("max_gpus"), f"{at}.max_gpus", faults),
        _limit(settings.get("author_max_gpus"), f"{at}.author_max_gpus", faults),
        _dated(settings.get("shares", []), f"{at}.shares", faults),
    )


def rules_of(spec: AccountSpec) -> dict[str, Any]:
    """Return the settings of an account other than share, owners and aliases, where it has any."""
    rules: dict[str, Any] = {}
    if spec.members:
        rules["members"] = list(spec.members)
    rules |= {key: value for key in _LIMITS if (value := getattr(spec, key)) is not None}
    if spec.later:
        rules["shares"] = [{"from": _write_date(at), "share": percent(share)} for at, share in spec.later]
    return rules


def with_rules(spec: AccountSpec, rules: Mapping[str, Any]) -> AccountSpec:
    """Return an account with the settings that `rules_of` wrote.

    Raises:
        ValueError: If they are damaged.
    """
    faults: list[Fault] = []
    read = _read_account(spec.path, {"share": 0, **rules}, spec.path, faults)
    if faults:
        raise ValueError("; ".join(str(fault) for fault in faults))
    return AccountSpec(
        spec.path,
        spec.share,
        spec.owners,
        spec.aliases,
        read.members,
        read.max_gpus,
        read.author_max_gpus,
        read.later,
    )


def in_order(specs: Sequence[AccountSpec], order: Any, at: str, faults: list[Fault]) -> list[AccountSpec]:
    """Return accounts in a given order of paths; those it does not name come after, as they stand."""
    if order is None:
        return list(specs)
    place = {path: number for number, path in enumerate(_names(order, at, faults))}
    return sorted(specs, key=lambda spec: place.get(spec.path, len(place)))


def order_of(specs: Sequence[AccountSpec]) -> list[str] | None:
    """Return the order of accounts where sorting their names, as a store does, would lose it."""
    paths = [spec.path for spec in specs]
    return None if paths == sorted(paths, key=lambda path: path.split(".")) else paths


def percent(share: Decimal) -> int | float:
    """Return a share as a file shows it."""
    number = float(share)
    return int(number) if number.is_integer() else number


def _names(value: Any, at: str, faults: list[Fault]) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(item, str) and item for item in value):
        return tuple(value)
    faults.append(Fault("budget-type", at, f"{value!r} is not a list of names", '["ada", "bob"]'))
    return ()


def _limit(value: Any, at: str, faults: list[Fault]) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST_LIMIT:
        faults.append(
            Fault("account-limit", at, f"{value!r} is not a limit", f"0 to {_LARGEST_LIMIT} devices")
        )
        return None
    return value


def _dated(value: Any, at: str, faults: list[Fault]) -> tuple[tuple[int, Decimal], ...]:
    """Return the dated shares of an account, in order of time."""
    example = "shares = [{ from = 2027-01-01, share = 40 }]"
    if not isinstance(value, list):
        faults.append(Fault("share-dated", at, f"{value!r} is not a list", example))
        return ()
    found: dict[int, Decimal] = {}
    for number, item in enumerate(value):
        where = f"{at}[{number}]"
        if not isinstance(item, Mapping) or set(item) != {"from", "share"}:
            faults.append(Fault("share-dated", where, "needs from and share and nothing else", example))
            continue
        try:
            since, share = read_date(item["from"]), parse_decimal(item["share"])
        except ValueError as error:
            faults.append(Fault("share-dated", where, str(error), example))
            continue
        if not 0 <= share <= 100:
            faults.append(Fault("share-range", where, f"{share}", "0 to 100 percent of the parent"))
        elif since in found:
            faults.append(
                Fault("share-dated", where, "a second share from the same date", "one", "remove it")
            )
        else:
            found[since] = share
    return tuple(sorted(found.items()))


def read_date(value: Any) -> int:
    """Return the ms since the Unix epoch of a TOML date, a text in ISO 8601, or a number of seconds.

    Raises:
        ValueError: If it is none of these, or outside the years 1970 to 3000.
    """
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not {_DATE_HELP}")
    at: int
    if isinstance(value, int | float):
        at = round(value * SECOND) if 0 <= value <= _LAST_MS else -1  # NaN is neither
    else:
        at = _instant(value)
    if not 0 <= at <= _LAST_MS:
        raise ValueError(f"{value} is outside the years 1970 to 3000")
    return at


def _instant(value: object) -> int:
    if isinstance(value, str):
        text = value
        try:
            value = datetime.fromisoformat(text)
        except ValueError as error:
            raise ValueError(f"{text[:80]!r} is not {_DATE_HELP}") from error
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001 - made UTC just below
    if not isinstance(value, datetime):
        raise ValueError(f"{value!r} is not {_DATE_HELP}")
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    try:
        return round(value.timestamp() * SECOND)
    except OverflowError as error:
        raise ValueError(f"{value} is outside the years 1970 to 3000") from error


def _write_date(at: int) -> str:
    return datetime.fromtimestamp(at / SECOND, UTC).isoformat().replace("+00:00", "Z")
