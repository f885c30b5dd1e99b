"""Receivers: who is told of what, as an administrator wrote it down; every fault of the file at once."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from divvy.errors import Fault, InputError
from divvy.fleet.account import ACCOUNT_NAME
from divvy.units import SECOND, parse_duration

EVENTS: Final = ("preemption", "finished", "budget")
_KEYS: Final = (
    "name",
    "command",
    "url",
    "secret",
    "secret_file",
    "events",
    "accounts",
    "thresholds",
    "timeout",
)
_LONGEST: Final = 60 * SECOND
_MOST: Final = 1_000


@dataclass(frozen=True, slots=True)
class Receiver:
    """One receiver.

    Attributes:
        name: Names its place in the state directory.
        command: What to run, no shell involved; empty for a webhook.
        url: Where to post; empty for a command.
        secret: Signs what is posted; empty: unsigned.
        events: What it is told of, of `EVENTS`.
        accounts: Only of these accounts and those below them; empty: all.
        thresholds: Percent of the entitlement at which a budget is told of.
        timeout: How long one delivery may take, ms.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    secret: str = field(default="", repr=False)
    events: tuple[str, ...] = EVENTS
    accounts: tuple[str, ...] = ()
    thresholds: tuple[int, ...] = (80, 100)
    timeout: int = 10 * SECOND


def read_receivers(path: Path) -> tuple[Receiver, ...]:
    """Return the receivers of a file.

    Raises:
        InputError: With every fault and its place.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError.one("notify-file", error.strerror or str(error), path=str(path)) from error
    except (ValueError, RecursionError) as error:  # also lists nested too deep and numbers too long
        raise InputError.one("notify-syntax", f"not valid TOML: {error}", path=str(path)) from error
    faults = [
        Fault("notify-key", f"{path.name}.{key}", "unknown", "[[receiver]]", "remove it")
        for key in sorted(document.keys() - {"receiver"})
    ]
    listed = document.get("receiver", [])
    if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
        faults.append(Fault("notify-none", path.name, "no receiver", "at least one [[receiver]]"))
        listed = []
    found = [_read(one, f"{path.name}.receiver[{place}]", path, faults) for place, one in enumerate(listed)]
    names = [one.name for one in found]
    faults += [
        Fault("notify-name", path.name, f"two receivers are called {name!r}", "each name once", "rename one")
        for name in sorted({name for name in names if name and names.count(name) > 1})
    ]
    if faults:
        raise InputError("the receivers of notifications cannot be used", faults)
    return tuple(found)


def _read(raw: Mapping[str, Any], at: str, path: Path, faults: list[Fault]) -> Receiver:
    def wrong(key: str, message: str, allowed: str) -> None:
        faults.append(Fault("notify-value", f"{at}.{key}", message, allowed, "correct it"))

    faults += [
        Fault("notify-key", f"{at}.{key}", "unknown", ", ".join(_KEYS), "remove or rename it")
        for key in sorted(raw.keys() - set(_KEYS))
    ]
    name = str(raw.get("name", ""))
    if not ACCOUNT_NAME.fullmatch(name):
        wrong("name", f"{name!r} is no name", "letters, digits, _ and -")
    command, url = _texts(raw.get("command", [])), str(raw.get("url", ""))
    if command is None or not all(command):
        wrong("command", f"{raw.get('command')!r}", 'a list of words, such as ["/usr/bin/logger", "-t"]')
        command = ()
    if bool(command) == bool(url):
        wrong("command", "neither a command nor a url, or both", "one of the two")
    if url and not _sound(url):
        wrong("url", f"{url!r} is no address", "http(s)://HOST[:PORT]/PATH")
    events = _texts(raw.get("events", list(EVENTS)))
    if events is None or set(events) - set(EVENTS):
        wrong("events", f"{raw.get('events')!r}", f"some of {', '.join(EVENTS)}")
        events = ()
    accounts = _texts(raw.get("accounts", []))
    if accounts is None:
        wrong("accounts", f"{raw.get('accounts')!r}", "a list of account paths")
    thresholds = _thresholds(raw.get("thresholds", [80, 100]), wrong)
    return Receiver(
        name,
        command,
        url,
        _secret(raw, path, wrong),
        events,
        accounts or (),
        thresholds,
        _timeout(raw.get("timeout", "10s"), wrong),
    )


def _texts(value: Any) -> tuple[str, ...] | None:
    if not isinstance(value, list) or not all(isinstance(one, str) and "\0" not in one for one in value):
        return None
    return tuple(value)


def _sound(url: str) -> bool:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return known and url.isprintable() and " " not in url


def _thresholds(value: Any, wrong: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(one) is int and 0 < one <= _MOST for one in value):
        wrong("thresholds", f"{value!r}", f"a list of whole percentages, 1 to {_MOST}")
        return ()
    return tuple(sorted(set(value)))


def _timeout(text: Any, wrong: Any) -> int:
    try:
        timeout = parse_duration(str(text))
    except ValueError:
        timeout = 0
    if not 0 < timeout <= _LONGEST:
        wrong("timeout", f"{text!r}", 'up to "60s"')
        return _LONGEST
    return timeout


def _secret(raw: Mapping[str, Any], path: Path, wrong: Any) -> str:
    """Return the secret, from the file itself or from one beside it."""
    if "secret_file" not in raw:
        return str(raw.get("secret", ""))
    try:
        return (path.parent / str(raw["secret_file"])).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        wrong("secret_file", f"cannot be read: {error}", "a readable file with the secret in it")
        return ""
