"""The work of `divvy slices drift`: has the traffic moved, and does a new plan pay for its change."""

from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divvy.cli.render import Output, Span
from divvy.cli.slice_apply import read_plan
from divvy.cli.slice_inputs import read_file
from divvy.errors import Fault, InputError
from divvy.fleet.mig.change import plan_change
from divvy.perf.traffic import from_weights
from divvy.planners.slices.drift import detect, worth_it


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
    faults = []
    for number, row in enumerate(csv.reader(text.splitlines()), start=1):
        if not row or row[0].startswith("#"):
            continue
        try:
            batch, count = int(row[0]), int(row[1]) if len(row) > 1 else 1
        except ValueError:
            batch = count = 0
        if batch < 1 or count < 1:
            faults.append(Fault("drift-row", f"{path}:{number}", f"{','.join(row)!r}", "batch[,count]"))
        else:
            seen[batch] += count
    if not seen and not faults:
        faults.append(Fault("drift-row", path, "no batch sizes in this file", "batch[,count]"))
    if faults:
        raise InputError(f"{path} has faults", faults)
    return seen


def _figures(path: Path) -> tuple[dict[int, float], float]:
    """Return the batch sizes that a plan was made for, and its rate."""
    document = json.loads(read_file(path, "PLAN"))
    try:
        return {int(b): float(w) for b, w in document["batches"].items()}, float(document["rate_qps"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError.one(
            "plan-file", f"{path} has no batches and rate: {error}", allowed="the JSON of divvy slices plan"
        ) from error


def run_drift(
    plan: Path, seen: Path, rate_qps: float, new: Path | None, patience: Patience, kind: str, output: Output
) -> None:
    """Print how far the traffic is from a plan and, with a new plan, whether to change."""
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
