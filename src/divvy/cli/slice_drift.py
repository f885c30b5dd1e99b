"""The work of `divvy slices drift`: has the traffic moved, and does a new plan pay for its change."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from divvy.cli.render import Output, Span
from divvy.cli.slice_apply import read_document, read_plan
from divvy.cli.slice_inputs import read_file
from divvy.errors import Fault, InputError
from divvy.fleet.mig.change import COSTS, plan_change
from divvy.perf.profile_csv import MOST_ITEMS
from divvy.perf.tables import read_rows
from divvy.perf.traffic import from_weights
from divvy.planners.slices.drift import detect, worth_it
from divvy.units import parse_float, parse_whole

_MOST: Final = 1e12


@dataclass(frozen=True, slots=True)
class Patience:
    """When a change is worth it: margin, seconds the traffic stays, seconds since the last change."""

    hysteresis: float
    horizon_seconds: float
    since_seconds: float


def read_counts(text: str, path: str) -> Counter[int]:
    """Return how often each batch size was seen: one per line, or ``batch,count``.

    Raises:
        InputError: With every line that is neither.
    """
    seen: Counter[int] = Counter()
    rows, faults = read_rows(text, path, "drift-row")
    if rows and rows[0].cells[0].lower() == "batch":
        rows = rows[1:]
    for row in rows:
        try:
            batch, count = parse_whole(row.cells[0]), parse_whole(row.cells[1]) if len(row.cells) > 1 else 1
        except ValueError:
            batch = count = 0
        if not 1 <= batch <= MOST_ITEMS or count < 1 or len(row.cells) > 2:
            what = repr(",".join(row.cells))
            faults.append(Fault("drift-row", f"{path}:{row.line}", what, "batch[,count]"))
        else:
            seen[batch] += count
    if not seen and not faults:
        faults.append(Fault("drift-row", path, "no batch sizes in this file", "batch[,count]"))
    if faults:
        raise InputError(f"{path} has faults", faults)
    return seen


def _figures(path: Path) -> tuple[dict[int, float], float]:
    """Return the batch sizes that a plan was made for, and its rate."""
    document = read_document(read_file(path, "PLAN"), str(path))
    try:
        batches = {parse_whole(b): parse_float(str(w)) for b, w in document["batches"].items()}
        rate = parse_float(str(document["rate_qps"]))
    except (KeyError, ValueError, AttributeError) as error:
        raise InputError.one(
            "plan-file", f"{path} has no batches and rate: {error}", allowed="the JSON of divvy slices plan"
        ) from error
    if rate < 0:
        raise InputError.one("plan-file", f"{path}: a rate of {rate:g}", allowed=">= 0")
    return batches, rate


def _check(rate_qps: float, patience: Patience, kind: str) -> None:
    """Refuse numbers that are none, and unknown kinds of change, whether they are needed or not."""
    faults = [
        Fault("drift-number", option, f"{value:g}", f"0 to {_MOST:g}")
        for option, value in (
            ("--rate", rate_qps),
            ("--hysteresis", patience.hysteresis),
            ("--horizon", patience.horizon_seconds),
            ("--since", patience.since_seconds),
        )
        if not 0 <= value <= _MOST
    ]
    if kind not in COSTS:
        faults.append(Fault("change-kind", "--change", repr(kind), ", ".join(COSTS)))
    if faults:
        raise InputError("the request has faults", faults)


def run_drift(
    plan: Path, seen: Path, rate_qps: float, new: Path | None, patience: Patience, kind: str, output: Output
) -> None:
    """Print how far the traffic is from a plan and, with a new plan, whether to change."""
    _check(rate_qps, patience, kind)
    sku, layouts = read_plan(read_file(plan, "PLAN"), str(plan))
    weights, planned_qps = _figures(plan)
    counts = read_counts(read_file(seen, "--seen"), str(seen))
    drift = detect(from_weights(weights), planned_qps, counts, rate_qps)
    document: dict[str, Any] = {
        "schema": "divvy.slices.drift/1",
        "batches": round(drift.batches, 5),
        "rate": round(drift.rate, 5),
        "significant": drift.significant,
        "text": drift.text,
    }
    if new is not None:
        other, wanted = read_plan(read_file(new, "--new"), str(new))
        if other.name != sku.name:
            raise InputError.one("drift-sku", f"{new} is for {other.name}", path="--new", allowed=sku.name)
        change, _ = plan_change(sku, layouts, wanted, kind)
        decision = worth_it(
            planned_qps,
            _figures(new)[1],
            rate_qps,
            change.lost_gpc_seconds,
            sku.compute_slices * len(layouts),
            horizon_seconds=patience.horizon_seconds,
            hysteresis=patience.hysteresis,
            seconds_since_last=patience.since_seconds,
        )
        document |= {
            "decision": {"change": decision.change, "text": decision.text},
            "seconds": list(change.seconds),
            "lost_gpc_seconds": change.lost_gpc_seconds,
            "steps": [step.text for step in change.steps],
        }
    if output.machine(document, ["drift" if drift.significant else "steady"]):
        return
    word = Span("drift", "yellow") if drift.significant else Span("steady", "green")
    output.screen.line(word, f": {drift.text}")
    if "decision" in document:
        verdict = "change" if document["decision"]["change"] else "stay"
        output.screen.line(Span(verdict, "bold"), f": {document['decision']['text']}")
