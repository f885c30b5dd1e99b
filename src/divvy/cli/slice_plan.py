"""The work of `divvy slices plan`: plan, prove, write events, print."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divvy.adapters.rayserve.setting import deployment_yaml, table_of
from divvy.cli.chatter import libraries_quiet
from divvy.cli.render import Column, Output, Span, number, percent
from divvy.cli.slice_inputs import load_batches, load_gaps, load_profile, load_sku, make_request
from divvy.errors import InputError
from divvy.fleet.mig.emit import FORMS, draw, emit
from divvy.perf.latency import LatencyProfile, oddities, size_oddities
from divvy.planners.queries.registry import find_rule
from divvy.planners.slices.base import SlicePlan
from divvy.planners.slices.registry import find_planner
from divvy.planners.slices.search import Search
from divvy.sim.queries.report import event_lines, plan_document
from divvy.sim.queries.study import (
    Proof,
    Study,
    best_homogeneous,
    best_paris,
    make_study,
    never_worse,
    plan_and_prove,
)

_SHOWN = 12
RAYSERVE = "rayserve"


@dataclass(frozen=True, slots=True)
class Goal:
    """The objective: given, or a factor; whose percentile; of all queries or of each bucket."""

    slo_factor: float | None
    slo_ms: float | None
    percentile: float
    per_bucket: bool


@dataclass(frozen=True, slots=True)
class Traffic:
    """What arrives: batch sizes, kind of arrivals, queries per seed, number of seeds, first seed."""

    batch: str
    arrivals: str
    queries: int
    seeds: int
    seed: int


@dataclass(frozen=True, slots=True)
class Target:
    """What is cut: SKU (or a table to learn it from) and number of GPUs."""

    sku: str
    table: Path | None
    gpus: int


def stage(profile: LatencyProfile, target: Target, goal: Goal, traffic: Traffic) -> Study:
    """Return the stage on which plans of a profile are proved."""
    request = make_request(
        profile,
        load_sku(target.sku, target.table),
        target.gpus,
        load_batches(traffic.batch),
        goal.slo_factor,
        goal.slo_ms,
        goal.percentile,
        per_bucket=goal.per_bucket,
        seed=traffic.seed,
    )
    gaps = load_gaps(traffic.arrivals)
    return make_study(
        request,
        traffic.seeds,
        queries=traffic.queries,
        arrivals=traffic.arrivals if gaps is None else "poisson",
        gaps=gaps,
    )


def run_plan(
    profile_text: str,
    target: Target,
    goal: Goal,
    traffic: Traffic,
    ways: tuple[str, str],
    form: str | None,
    events: Path | None,
    output: Output,
) -> None:
    """Make and prove a plan, and print it: JSON, the emitted form, or text for people.

    Args:
        profile_text: Path of the profile, or ``fitted:MODEL``.
        target: What is cut.
        goal: The objective.
        traffic: What arrives.
        ways: Planner and dispatcher.
        form: Form to emit the layouts in; None for none.
        events: Where each query is written; None for nowhere.
        output: Where and how to print.
    """
    _refuse_form(form)
    planner, _ = find_planner(ways[0]), find_rule(ways[1])
    profile = load_profile(profile_text)
    with libraries_quiet():
        study = stage(profile, target, goal, traffic).under(ways[1])
        plan, proof = plan_and_prove(study, planner, ways[1])
        homogeneous = prove_named(study, best_homogeneous(study))
        paris = prove_named(study, best_paris(study))
        if isinstance(planner, Search):
            plan, proof = never_worse(study, plan, proof, (homogeneous, paris))
    document = plan_document(study, plan, proof, ways[0], homogeneous, paris)
    document["oddities"] = _oddities(study)
    if form is not None:
        document["emit"] = {"form": form, "text": _emitted(form, study, plan)}
    if events is not None:
        count = write_events(events, event_lines(study, plan.choice, plan.layouts, proof.rate_qps))
        document["events"] = {"path": str(events), "lines": count, "unit": "seconds"}
    names = [f"{gpu}:{p.profile}:{p.start}" for gpu, layout in enumerate(plan.layouts) for p in layout]
    if output.machine(document, names):
        return
    if form is not None:
        output.screen.stream.write(document["emit"]["text"])
        return
    _show(output, study, plan, proof, document)


def _refuse_form(form: str | None) -> None:
    """Refuse a form that is not known, before anything is planned."""
    known = (*FORMS, RAYSERVE)
    if form is not None and form not in known:
        raise InputError.one("unknown-form", f"no form {form!r}", path="--emit", allowed=", ".join(known))


def _emitted(form: str, study: Study, plan: SlicePlan) -> str:
    """Return a plan in a form; that of Ray Serve carries the profile and the objective too."""
    request = study.request
    if form != RAYSERVE:
        return emit(form, request.sku, plan.layouts)
    slices = [request.sku.profile(p.profile).gpcs for layout in plan.layouts for p in layout]
    table = table_of(request.profile, sorted(set(slices)), request.batches.largest)
    return deployment_yaml(slices, table, request.slo_us / 1e3, request.profile.model)


def _oddities(study: Study) -> list[dict[str, Any]]:
    """Return what is odd about the profile of a plan: its own cells, and the sizes that the SKU has."""
    request = study.request
    sizes = size_oddities(request.profile, (p.gpcs for p in request.sku.base_profiles))
    cells = (o for o in oddities(request.profile) if o.processes == 1)
    return [
        {"code": o.code, "slice": o.gpcs, "batch": o.batch, "processes": o.processes, "text": o.text}
        for o in (*sizes, *cells)
    ]


def prove_named(study: Study, named: tuple[str, Any]) -> tuple[str, Proof]:
    """Return a named choice with its proof."""
    return named[0], study.prove(named[1])


def write_events(path: Path, lines: Any) -> int:
    """Write lines to a file and return how many.

    Raises:
        InputError: If the file cannot be written.
    """
    count = 0
    try:
        with path.open("w", encoding="utf-8") as file:
            for line in lines:
                file.write(f"{line}\n")
                count += 1
    except OSError as error:
        raise InputError.one("unwritable", f"{path}: {error.strerror}", path="--events") from error
    return count


def _show(output: Output, study: Study, plan: SlicePlan, proof: Proof, document: dict[str, Any]) -> None:
    screen, request = output.screen, study.request
    screen.line(
        Span(f"{request.profile.model} on {request.gpus} x {request.sku.name}", "bold"),
        f", objective {request.slo_us / 1e3:g} ms for {request.percentile:g}%"
        + (" of every bucket" if request.per_bucket else " of all queries"),
    )
    for gpu, layout in enumerate(plan.layouts):
        starts = " ".join(f"{p.profile}@{p.start}" for p in layout)
        screen.line(f"  gpu {gpu}  {draw(request.sku, layout):<66}  ", Span(starts, "dim"))
    low, high = proof.interval
    columns = [Column("what"), Column("queries/s", right=True), Column("of bound", right=True), Column("")]
    rows = [
        ("this plan", proof.rate_qps, f"{plan.choice.dispatcher}; per seed {low:.1f} to {high:.1f}"),
        ("best equal slices", document["baseline"]["qps"], document["baseline"]["best_homogeneous"]),
        ("best PARIS + ELSA", document["paris_qps"], document["paris"]),
        ("upper bound", study.bound_qps, "no schedule on any legal layout serves more"),
    ]
    screen.table(
        columns,
        [
            (
                name,
                number(rate),
                percent(rate / study.bound_qps if study.bound_qps else None),
                Span(note, "dim"),
            )
            for name, rate, note in rows
        ],
    )
    if proof.verdict is None:
        screen.line(Span("Nothing met the objective at any rate.", "red"))
        return
    screen.table(
        [Column("batches"), Column("p95 ms", right=True), Column("p99 ms", right=True), Column("met")],
        [
            (f"{b.low}-{b.high}", number(b.p95_ms), number(b.p99_ms), "yes" if b.met else Span("no", "red"))
            for b in proof.verdict.buckets
        ],
    )
    for line in plan.explanation[:_SHOWN]:
        screen.line(Span(f"  {line}", "dim"))
    odd = [o for o in document["oddities"] if o["code"] != "out-of-memory"]
    for oddity in odd[:_SHOWN]:
        where = f"slice {oddity['slice']}, batch {oddity['batch']}"
        screen.line(Span("  profile: ", "yellow"), f"{oddity['code']} at {where}: {oddity['text']}")
    if len(odd) > _SHOWN:
        screen.line(Span(f"  and {len(odd) - _SHOWN} more oddities (--json lists all)", "yellow"))
