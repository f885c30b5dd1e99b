"""Services and pairings as people write them: ``[[services]]`` and ``[[pairings]]`` of a TOML file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from divvy.errors import Fault
from divvy.fleet.tenant import CONTRACT, Pairing, Service, Tenants
from divvy.units import parse_bytes, parse_duration

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", re.ASCII)
_MOST_GPUS: Final = 1_000
_LONGEST_US: Final = 864e9
_NEEDED: Final = ("name", "account", "sku", "profile", "rate_qps", "slo")
_SERVICE: Final = (
    *_NEEDED,
    "batch",
    "percentile",
    "per_bucket",
    "least",
    "most",
    "min_runtime",
    "headroom",
    "model",
    "command",
)
_PAIRING: Final = ("prefill", "decode", "kv_bytes", "descriptors")
ANY: Final = "any"
DEFAULT_BATCH: Final = "lognormal:median=4,sigma=0.9,max=32"


class _Table:
    """One table of a file; every value is read with its fault noted instead of raised."""

    def __init__(self, body: Mapping[str, Any], at: str, known: tuple[str, ...], faults: list[Fault]) -> None:
        self.body, self.at, self.faults = body, at, faults
        for key in body:
            if key not in known:
                self.fault(key, "unknown setting", ", ".join(known))

    def fault(self, key: str, message: str, allowed: str = "") -> None:
        """Note what is wrong with a value."""
        self.faults.append(Fault("tenant-value", f"{self.at}.{key}", message, allowed))

    def text(self, key: str, default: str = "") -> str:
        """Return a text that is not empty."""
        value = self.body.get(key, default)
        if not isinstance(value, str) or not value:
            self.fault(key, f"{value!r} is no text" if key in self.body else "missing", "a text")
            return default
        return value

    def number(self, key: str, default: float, low: float, high: float, *, whole: bool = False) -> float:
        """Return a number of a range."""
        value = self.body.get(key, default)
        kinds = (int,) if whole else (int, float)
        fits = isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)
        if not fits or not low <= value <= high:
            kind = "a whole number" if whole else "a number"
            self.fault(key, repr(value) if key in self.body else "missing", f"{kind} of {low:g} to {high:g}")
            return default
        return float(value)

    def read(self, key: str, default: int, parse: Callable[[str], int], low: int) -> int:
        """Return a quantity with a unit, such as a duration."""
        if key not in self.body:
            return default
        try:
            value = parse(self.body[key]) if isinstance(self.body[key], str) else -1
        except ValueError as error:
            self.fault(key, str(error))
            return default
        if value < low:
            self.fault(key, f"{self.body[key]!r}", 'a text with a unit, such as "15m" or "1.3GB"')
            return default
        return value


def read_tenants(document: Mapping[str, Any], source: str, faults: list[Fault]) -> Tenants:
    """Return the services and pairings of a document; what is wrong is added to the faults.

    Args:
        document: The parsed file; only ``services`` and ``pairings`` are looked at.
        source: What the file is called in faults.
        faults: Where faults go.
    """
    services = [
        _service(_Table(body, at, _SERVICE, faults))
        for body, at in _tables(document, "services", source, faults)
    ]
    names = [service.name for service in services]
    faults += [
        Fault("tenant-twice", f"{source}.services", f"service {name!r} is declared twice")
        for name in sorted({name for name in names if name and names.count(name) > 1})
    ]
    pairings = []
    for body, at in _tables(document, "pairings", source, faults):
        table = _Table(body, at, _PAIRING, faults)
        one = Pairing(
            table.text("prefill"),
            table.text("decode"),
            table.read("kv_bytes", 1, parse_bytes, 1) if "kv_bytes" in body else 0,
            int(table.number("descriptors", 1, 1, 10_000_000, whole=True)),
        )
        if not one.kv_bytes:
            table.fault("kv_bytes", "missing", 'bytes of one cache, such as "1.3GB"')
        for key, name in (("prefill", one.prefill), ("decode", one.decode)):
            if name and name not in names:
                table.fault(key, f"no service {name!r}", ", ".join(names))
        if one.prefill and one.prefill == one.decode:
            table.fault("decode", "a service is not paired with itself")
        pairings.append(one)
    return Tenants(tuple(services), tuple(pairings))


def _tables(
    document: Mapping[str, Any], key: str, source: str, faults: list[Fault]
) -> list[tuple[Mapping[str, Any], str]]:
    listed = document.get(key, [])
    if not isinstance(listed, list) or not all(isinstance(body, Mapping) for body in listed):
        faults.append(Fault("tenant-type", f"{source}.{key}", "no list of tables", f"[[{key}]]"))
        return []
    return [(body, f"{source}.{key}[{place}]") for place, body in enumerate(listed)]


def _service(table: _Table) -> Service:
    """Return one service; values that are wrong are replaced, since the faults stop the file anyway."""
    name = table.text("name")
    if name and not _NAME.fullmatch(name):
        table.fault("name", f"{name!r} is not a name", "letters, digits, - and _, at most 63")
    per_bucket = table.body.get("per_bucket", True)
    if not isinstance(per_bucket, bool):
        table.fault("per_bucket", repr(per_bucket), "true or false")
    command = table.body.get("command", [])
    if not isinstance(command, list) or not all(isinstance(word, str) and word for word in command):
        table.fault("command", repr(command), 'a list of words, such as ["divvy", "serve"]')
        command = []
    least = int(table.number("least", 0, 0, _MOST_GPUS, whole=True))
    most = int(table.number("most", 8, 1, _MOST_GPUS, whole=True))
    if least > most:
        table.fault("least", f"{least} is more than most = {most}")
    sku = table.text("sku")
    model = table.text("model", sku)
    return Service(
        name=name,
        account=table.text("account"),
        sku=sku,
        profile=table.text("profile"),
        batches=table.text("batch", DEFAULT_BATCH),
        rate_qps=table.number("rate_qps", -1, 0, 1e9),
        slo_us=_objective(table),
        percentile=table.number("percentile", 95, 1, 99.999),
        per_bucket=bool(per_bucket),
        least=least,
        most=most,
        contract=table.read("min_runtime", CONTRACT, parse_duration, 1),
        headroom=table.number("headroom", 0.1, 0, 10),
        model="" if model == ANY else model,
        command=tuple(command),
    )


def _objective(table: _Table) -> int:
    """Return the objective in microseconds; it is written as a duration or as a number of milliseconds."""
    value = table.body.get("slo")
    if isinstance(value, str):
        return table.read("slo", 0, parse_duration, 1) * 1_000
    micro = value * 1_000 if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not 1 <= micro <= _LONGEST_US:
        table.fault("slo", repr(value) if value is not None else "missing", "ms as a number, or 50ms")
        return 0
    return round(micro)
