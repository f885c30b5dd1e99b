"""The work of `divvy slices profile`: measure a real server, or look at a profile that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from divvy.adapters.oip.measure import Measured, Server, measure
from divvy.cli.render import Column, Output, Span, number
from divvy.cli.slice_inputs import load_profile
from divvy.errors import InputError
from divvy.perf.fitted import fit
from divvy.perf.latency import Oddity, oddities
from divvy.perf.profile_csv import MOST_ITEMS, read_profile, slice_size
from divvy.units import parse_whole


def run_profile(
    url: str,
    model: str,
    batches: str,
    gpcs: str,
    processes: int,
    repeats: int,
    free: int,
    to: Path | None,
    output: Output,
) -> None:
    """Measure a model on a server, print the profile, and write it as CSV."""
    sizes = _batches(batches)
    if slice_size(gpcs) == 0:
        allowed = "compute slices (3) or a profile's name (3g.40gb)"
        raise InputError.one("profile-slice", f"{gpcs!r}", path="--slice", allowed=allowed)
    server = Server(url, model)
    try:
        found = measure(server, sizes, repeats, at_once=processes, free=free)
    finally:
        server.close()
    text = profile_csv(
        found, gpcs, processes, f"measured on {url}, model {model}, {repeats} requests per batch"
    )
    if all(one.latency_ms is None for one in found):
        raise InputError.one(
            "oip-refused", f"the server refused every batch: {found[0].refusal}", path="--batches"
        )
    profile = read_profile(text, model, "the measurement")
    if to is not None:
        try:
            to.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError.one("unwritable", f"{to}: {error.strerror}", path="--output") from error
    odd = oddities(profile)
    document = profile_document(url, model, gpcs, processes, found, odd)
    document["csv"] = str(to) if to is not None else None
    if output.machine(document, [one.batch for one in found]):
        return
    if to is None:
        output.screen.stream.write(text)
    else:
        output.screen.line(f"wrote {to}")
    for oddity in odd:
        output.screen.line(Span(f"# {oddity.code} at batch {oddity.batch}: {oddity.text}", "yellow"))


def profile_document(
    url: str,
    model: str,
    gpcs: str,
    processes: int,
    found: tuple[Measured, ...],
    odd: tuple[Oddity, ...],
) -> dict[str, Any]:
    """Return the document ``divvy.slices.profile/1``."""
    return {
        "schema": "divvy.slices.profile/1",
        "server": url,
        "model": model,
        "slice": gpcs,
        "processes": processes,
        "rows": [
            {
                "batch": one.batch,
                "latency_ms": None if one.latency_ms is None else round(one.latency_ms, 3),
                "p95_ms": None if one.p95_ms is None else round(one.p95_ms, 3),
                "repeats": one.repeats,
                "refusal": one.refusal or None,
            }
            for one in found
        ],
        "oddities": [{"code": o.code, "batch": o.batch, "text": o.text} for o in odd],
    }


def profile_csv(found: tuple[Measured, ...], gpcs: str, processes: int, source: str) -> str:
    """Return a measurement in the house's CSV; a refused batch is a zero, as in published tables."""
    rows = [f"# {source}", "slice,batch,processes,throughput,latency_seconds"]
    for one in found:
        seconds = 0.0 if one.latency_ms is None else one.latency_ms / 1e3
        rate = one.batch / seconds if seconds > 0 else 0.0
        rows.append(f"{gpcs},{one.batch},{processes},{rate:.3f},{seconds:.6f}")
    return "\n".join(rows) + "\n"


def _batches(text: str) -> list[int]:
    try:
        sizes = sorted({parse_whole(part) for part in text.split(",") if part.strip()})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1 or sizes[-1] > MOST_ITEMS:
        allowed = f"numbers of 1 to {MOST_ITEMS}, such as 1,2,4,8"
        raise InputError.one("batches", f"{text!r}", path="--batches", allowed=allowed)
    return sizes


def run_check(text: str, output: Output) -> None:
    """Print what is odd about a profile, and the model fitted to it with its error."""
    profile = load_profile(text)
    odd, fits = oddities(profile), fit(profile)
    document = {
        "schema": "divvy.slices.check/1",
        "model": profile.model,
        "sizes": list(profile.sizes),
        "oddities": [
            {"code": o.code, "slice": o.gpcs, "batch": o.batch, "processes": o.processes, "text": o.text}
            for o in odd
        ],
        "fit": [
            {
                "slice": f.gpcs,
                "floor_ms": f.floor_us / 1e3,
                "base_ms": f.base_us / 1e3,
                "per_item_ms": f.per_item_us / 1e3,
                "largest_batch": f.largest,
                "mean_relative_error": f.error,
            }
            for f in fits
        ],
    }
    if output.machine(document, [f"{o.code}:{o.gpcs}:{o.batch}:{o.processes}" for o in odd]):
        return
    screen = output.screen
    screen.line(Span(profile.model, "bold"), f": {len(odd)} oddities")
    columns = [
        Column("code"),
        *(Column(t, right=True) for t in ("slice", "batch", "processes")),
        Column("what"),
    ]
    screen.table(columns, [(o.code, str(o.gpcs), str(o.batch), str(o.processes), o.text) for o in odd])
    titles = ("slice", "floor ms", "base ms", "ms per item", "largest batch", "error %")
    screen.table(
        [Column(title, right=True) for title in titles],
        [
            (
                str(f.gpcs),
                number(f.floor_us / 1e3, 2),
                number(f.base_us / 1e3, 2),
                number(f.per_item_us / 1e3, 3),
                str(f.largest),
                number(f.error * 100, 1),
            )
            for f in fits
        ],
    )
