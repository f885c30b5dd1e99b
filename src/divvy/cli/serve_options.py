"""What `divvy serve` was told, checked together: the back-ends file, the profile and the options."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from divvy.adapters.front.charges import Charges
from divvy.adapters.front.config import Setup
from divvy.adapters.front.keys import read_keys
from divvy.adapters.front.showing import Showing
from divvy.bootstrap.front import Options
from divvy.cli.client import USER_HOME, Client, find_target
from divvy.cli.slice_inputs import load_profile, read_file
from divvy.errors import DivvyError, Fault, InputError
from divvy.fleet.device import DEVICE_MODELS
from divvy.perf.latency import LatencyProfile
from divvy.planners.queries.registry import find_rule
from divvy.units import BYTES_HELP, DURATION_HELP, SECOND, parse_bytes, parse_duration

_MOST_BODY: Final = 1 << 30
_POST_SECONDS: Final = 10.0
_SHOW_SECONDS: Final = 5.0
_SHOWN_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")  # as the API has it
_T = TypeVar("_T")


class Given(NamedTuple):
    """The options as they were typed."""

    host: str
    port: int
    most_waiting: int
    longest_wait: str
    max_body: str
    refuse_late: bool
    tokens: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    charge: str = ""
    spool: Path | None = None
    gpu: str = ""
    grpc_port: int | None = None
    publish: str = ""
    publish_as: str = ""


def read_options(given: Given, load: Callable[[], Setup]) -> tuple[Setup, LatencyProfile, Options]:
    """Return what is to be served, and how.

    Raises:
        InputError: With the faults of the file, its profile, its rule and all options together.
    """
    faults: list[Fault] = []
    wait_ms = _attempt(faults, lambda: _number("--longest-wait", given.longest_wait, parse_duration))
    body = _attempt(faults, lambda: _number("--max-body", given.max_body, parse_bytes))
    keys = given.tokens
    known = None
    if keys is not None:
        known = _attempt(faults, lambda: read_keys(read_file(keys, "--tokens"), str(keys)))
    tls = None
    if given.tls_cert is not None and given.tls_key is not None:
        tls = given.tls_cert, given.tls_key
    elif given.tls_cert is not None or given.tls_key is not None:
        faults.append(Fault("serve-tls", "--tls-cert, --tls-key", "one without the other", "both or none"))
    seconds = (wait_ms or SECOND) / SECOND
    setup = _attempt(faults, load)
    options = Options(
        given.host,
        given.port,
        given.most_waiting,
        body or 1,
        seconds,
        given.refuse_late,
        known,
        tls,
        _attempt(faults, lambda: _charges(given)),
        given.grpc_port,
        showing=_attempt(faults, lambda: _showing(given, setup)),
    )
    _attempt(faults, options.context)
    profile = None
    if setup is not None:
        profiles = {one.model: _checked(faults, one) for one in setup.all}
        profile = profiles.pop(setup.model)
        options = replace(options, profiles={name: one for name, one in profiles.items() if one is not None})
    if faults or setup is None or profile is None:
        raise InputError("this cannot be served", faults)
    return setup, profile, options


def _checked(faults: list[Fault], setup: Setup) -> LatencyProfile | None:
    """Return a model's profile; what is wrong with it or the rule goes to `faults`."""
    _attempt(faults, lambda: find_rule(setup.rule))
    return _attempt(faults, lambda: _measured(setup))


def _charges(given: Given) -> Charges | None:
    """Return what charges accounts; None where nobody is to be charged.

    Raises:
        InputError: If the address, the devices or the accounts are missing or wrong.
    """
    if not given.charge:
        return None
    if given.gpu not in DEVICE_MODELS or given.tokens is None:
        raise InputError.one(
            "serve-charge",
            f"--gpu {given.gpu!r}, {'no' if given.tokens is None else 'with'} --tokens",
            path="--charge",
            allowed=f"--gpu of {', '.join(DEVICE_MODELS)}; --tokens, which name the accounts",
        )
    client = Client(find_target(given.charge), _POST_SECONDS)
    spool = given.spool or USER_HOME.expanduser() / "serve"

    def tell(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    return Charges(spool, given.gpu, lambda batch: client.post("slices", body=batch), tell)


def _showing(given: Given, setup: Setup | None) -> Showing | None:
    """Return what shows the router on the page; None where it is not to be shown.

    Raises:
        InputError: If the address or the name is wrong.
    """
    if not given.publish:
        return None
    model = "" if setup is None else setup.model
    made = re.sub(r"[^a-z0-9._-]+", "-", f"serve-{model}".lower())[:63]
    name = given.publish_as or made
    if _SHOWN_NAME.fullmatch(name) is None:
        raise InputError.one(
            "serve-publish",
            f"{name[:80]!r} is no name on the page",
            path="--publish-as",
            allowed="up to 63 of a-z, 0-9, dot, dash and underscore; first a letter or a figure",
        )
    client = Client(find_target(given.publish), _SHOW_SECONDS)

    def put(document: dict[str, Any]) -> object:
        return client.put("shown", name, body={"document": document, "command": "divvy serve"})

    def tell(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    return Showing(put, tell)


def _measured(setup: Setup) -> LatencyProfile:
    """Return the profile, which must know every slice size.

    Raises:
        InputError: If it cannot be read, or lacks a size.
    """
    profile = load_profile(setup.profile)
    missing = sorted({one.slot.gpcs for one in setup.slices.values()} - {*profile.sizes})
    if missing:
        sizes = ", ".join(f"{size}g" for size in missing)
        allowed = ", ".join(f"{size}g" for size in profile.sizes)
        raise InputError.one(
            "serve-profile", f"{profile.model} has no {sizes}", path="slices", allowed=allowed
        )
    return profile


def _number(option: str, text: str, parse: Callable[[str], int]) -> int:
    try:
        value = parse(text)
        if not 0 < value <= _MOST_BODY:
            raise ValueError(f"{text!r} is too small or too large")  # noqa: TRY301 - one answer to all
    except ValueError as error:
        allowed = DURATION_HELP if parse is parse_duration else f"{BYTES_HELP}, at most 1GiB"
        raise InputError.one("serve-option", str(error), path=option, allowed=allowed) from error
    return value


def _attempt(faults: list[Fault], make: Callable[[], _T]) -> _T | None:
    """Return what is made; None where it cannot be, and then why goes to `faults`."""
    try:
        return make()
    except DivvyError as error:
        faults += error.faults
        return None
