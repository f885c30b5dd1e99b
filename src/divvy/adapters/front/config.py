"""The back ends of the router: a JSON file of the model, its profile and objective, and the slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from divvy.errors import Fault, InputError
from divvy.planners.queries.desk import Slot
from divvy.units import parse_json

#: Longest objective, of a file and of a query: ten days.
LONGEST_MS: Final = 864e6
SCHEMA: Final = "divvy.serve.backends/1"
_KNOWN: Final = {"schema", "model", "profile", "slo_ms", "rule", "slices", "models"}
_KNOWN_MODEL: Final = {"profile", "slo_ms", "rule"}
_KNOWN_SLICE: Final = {"model", "name", "url", "gpcs", "price", "profile", "gpu", "start"}


@dataclass(frozen=True, slots=True)
class Declared:
    """A slice, where its server is, and its model; the file's own where that is empty."""

    slot: Slot
    host: str
    port: int
    prefix: str
    model: str = ""


@dataclass(frozen=True, slots=True)
class Setup:
    """What the file says.

    Attributes:
        model: Name of the model.
        profile: Latency profile: a CSV file or ``fitted:MODEL``.
        slo_us: Objective of a query whose header says nothing.
        rule: Dispatch rule with its parameters.
        slices: By name.
        more: What it says of further models.
    """

    model: str
    profile: str
    slo_us: int
    rule: str
    slices: Mapping[str, Declared]
    more: tuple[Setup, ...] = ()

    @property
    def all(self) -> tuple[Setup, ...]:
        """Return every model, the file's own first."""
        return (self, *self.more)


def read_setup(text: str, path: str) -> Setup:
    """Return what a back-ends file says.

    Raises:
        InputError: With everything that is wrong.
    """
    try:
        document = parse_json(text)
    except ValueError as error:
        raise InputError.one("serve-backends", f"no JSON: {error}", path=path) from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError.one("serve-backends", "no such document", path=path, allowed=SCHEMA)
    faults = [Fault("serve-backends", key, "not known", ", ".join(_KNOWN)) for key in set(document) - _KNOWN]
    name = document.get("model")
    if not isinstance(name, str) or not name:
        faults.append(Fault("serve-backends", "model", f"{name!r}", "a text"))
        name = ""
    slices = _slices(document.get("slices"), faults)
    rows = {name: ("", document), **_models(document.get("models", {}), name, faults)}
    faults += [
        Fault("serve-backends", f"slices {one}.model", f"{place.model!r}", ", ".join(rows))
        for one, place in slices.items()
        if place.model and place.model not in rows
    ]
    setups = [
        _setup(model, where, row, {one: s for one, s in slices.items() if (s.model or name) == model}, faults)
        for model, (where, row) in rows.items()
    ]
    if faults:
        raise InputError(f"{path} has faults", faults)
    return replace(setups[0], more=tuple(setups[1:]))


def _models(rows: Any, own: str, faults: list[Fault]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Return where the file speaks of each further model, and what it says."""
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    if not isinstance(rows, dict):
        faults.append(Fault("serve-backends", "models", f"{type(rows).__name__}", "an object, by model"))
        return found
    for name, row in rows.items():
        if not name or name == own or not isinstance(row, dict) or set(row) - _KNOWN_MODEL:
            allowed = f"another model than {own!r}, with {', '.join(sorted(_KNOWN_MODEL))}"
            faults.append(Fault("serve-backends", f"models.{name}", "not a further model", allowed))
        else:
            found[name] = (f"models.{name}.", row)
    return found


def _setup(
    model: str, where: str, row: Mapping[str, Any], slices: Mapping[str, Declared], faults: list[Fault]
) -> Setup:
    """Return what the file says of one model; what is wrong goes to `faults`."""
    profile, slo, rule = row.get("profile"), row.get("slo_ms"), row.get("rule", "divvy")
    if not isinstance(profile, str) or not profile:
        faults.append(Fault("serve-backends", f"{where}profile", f"{profile!r}", "a text"))
    if isinstance(slo, bool) or not isinstance(slo, int | float) or not 0 < slo <= LONGEST_MS:
        allowed = f"milliseconds above 0, at most {LONGEST_MS:.0f}"
        faults.append(Fault("serve-backends", f"{where}slo_ms", f"{slo!r}", allowed))
        slo = 1
    return Setup(model, str(profile), round(float(slo) * 1e3), str(rule), slices)


def _slices(rows: Any, faults: list[Fault]) -> dict[str, Declared]:
    """Return the slices of the file; what is wrong with them goes to `faults`."""
    if not isinstance(rows, list):
        faults.append(Fault("serve-backends", "slices", f"{type(rows).__name__}", "a list"))
        return {}
    found: dict[str, Declared] = {}
    for number, row in enumerate(rows):
        where = f"slices[{number}]"
        if not isinstance(row, dict) or set(row) - _KNOWN_SLICE:
            faults.append(Fault("serve-backends", where, "not a slice", ", ".join(sorted(_KNOWN_SLICE))))
            continue
        if not isinstance(row.get("model", ""), str):
            faults.append(Fault("serve-backends", f"{where}.model", f"{row['model']!r}", "a text"))
            continue
        name, gpcs, price = row.get("name"), row.get("gpcs"), row.get("price", 0)
        if not isinstance(name, str) or not name or name in found:
            faults.append(Fault("serve-backends", f"{where}.name", f"{name!r}", "a text, each once"))
            continue
        if isinstance(gpcs, bool) or not isinstance(gpcs, int) or not 1 <= gpcs <= 1024:
            faults.append(Fault("serve-backends", f"{where}.gpcs", f"{gpcs!r}", "compute slices from 1 on"))
            continue
        if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < 1e9:
            faults.append(Fault("serve-backends", f"{where}.price", f"{price!r}", "a number from 0 on"))
            continue
        try:
            parts = urlsplit(str(row.get("url")))
            if parts.scheme != "http" or not parts.hostname:
                raise ValueError  # noqa: TRY301 - one answer to all that is no URL
            place = parts.hostname, parts.port or 80, parts.path.rstrip("/")
        except ValueError:
            faults.append(Fault("serve-backends", f"{where}.url", f"{row.get('url')!r}", "http://HOST:PORT"))
            continue
        found[name] = Declared(Slot(gpcs, float(price)), *place, row.get("model", ""))
    return found


def backends_document(
    model: str, profile: str, slo_ms: float, rule: str, slices: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the back-ends file's document; a slice has ``name``, ``url``, ``gpcs`` and perhaps ``price``."""
    return {
        "schema": SCHEMA,
        "model": model,
        "profile": profile,
        "slo_ms": slo_ms,
        "rule": rule,
        "slices": [dict(row) for row in slices],
    }
