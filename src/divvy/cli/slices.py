"""divvy slices: cut GPUs into MIG slices for inference, and prove the plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from divvy.cli.options import AsJson, NoTruncate, Quiet
from divvy.cli.render import Output, Span
from divvy.errors import InputError

# ruff: noqa: PLC0415 - solvers and the compiler are imported by the verbs that use them

verb = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help=__doc__)

_BATCH: Final = "lognormal:median=4,sigma=0.9,max=32"

Sku = Annotated[str, typer.Option("--sku", help="A30, A100-40GB, A100-80GB, H100-80GB, H100-NVL, H200, ...")]
Table = Annotated[
    Path | None,
    typer.Option(
        "--table", help="Learn the SKU: a file (-lgip and -lgipp), or smi or nvml: ask this machine."
    ),
]
Batch = Annotated[
    str, typer.Option("--batch", help="lognormal:median=,sigma=,max= | fixed: | uniform: | weights: | FILE")
]
SloFactor = Annotated[
    float | None, typer.Option("--slo-factor", help="x the largest batch on the largest slice. [1.5]")
]
SloMs = Annotated[float | None, typer.Option("--slo-ms", help="The objective itself, milliseconds.")]
Percentile = Annotated[float, typer.Option("--percentile", help="Share of queries that must meet it.")]
PerBucket = Annotated[bool, typer.Option("--per-bucket", help="Every batch bucket must meet it on its own.")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, max=100, help="Seeds to search on, and to confirm on.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The first seed.")]
Queries = Annotated[
    int, typer.Option("--queries", min=100, max=10_000_000, help="Queries per confirming seed.")
]
Arrivals = Annotated[str, typer.Option("--arrivals", help="poisson | bursts | a trace with time stamps.")]
Events = Annotated[Path | None, typer.Option("--events", help="Write each query as a JSON line, in seconds.")]


@verb.command("layouts")
def layouts(
    sku: str = typer.Argument(help="SKU, such as A100-80GB."),
    table: Table = None,
    every: bool = typer.Option(False, "--all-profiles", help="Also +me, double-memory and other variants."),
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """List every maximal legal layout of one GPU, with the start of each slice."""
    from divvy.cli.slice_inputs import load_sku
    from divvy.fleet.mig.emit import draw
    from divvy.fleet.mig.layout import maximal_layouts, multiset

    output, kind = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate), load_sku(sku, table)
    found = maximal_layouts(kind, kind.profiles if every else None)
    document = {
        "schema": "divvy.slices.layouts/1",
        "sku": kind.name,
        "maximal": len(found),
        "multisets": len({multiset(layout) for layout in found}),
        "layouts": [
            [{"profile": p.profile, "start": p.start, "size": p.size} for p in layout] for layout in found
        ],
        "source": kind.source,
    }
    names = [",".join(f"{p.profile}:{p.start}" for p in layout) for layout in found]
    if output.machine(document, names):
        return
    output.screen.line(
        Span(kind.name, "bold"), f": {len(found)} maximal layouts, {document['multisets']} as multisets"
    )
    for layout in found:
        output.screen.line(f"  {draw(kind, layout):<66}  ", Span(_sizes(kind, layout), "dim"))


def _sizes(kind: Any, layout: Any) -> str:
    sizes = Counter(kind.profile(p.profile).gpcs for p in layout)
    return " + ".join(
        f"{n} x {size}g" if n > 1 else f"{size}g" for size, n in sorted(sizes.items(), reverse=True)
    )


@verb.command("read")
def read(
    file: Path = typer.Argument(help="Output of nvidia-smi, mig-parted YAML, node labels or DCGM metrics."),
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Read a text that MIG tools print, and say what it holds; damage is an error with its lines."""
    import json

    from divvy.cli.slice_inputs import read_file
    from divvy.fleet.mig.parse.kinds import read_any

    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    kind, content = read_any(read_file(file, "FILE"), file.name)
    rows = plain(content)
    if output.machine({"schema": "divvy.slices.read/1", "kind": kind, "content": rows}, [kind]):
        return
    output.screen.line(Span(file.name, "bold"), f": {kind}")
    for row in rows if isinstance(rows, list) else [rows]:
        output.screen.line(f"  {json.dumps(row)}")


def plain(value: Any) -> Any:
    """Return a parsed value as JSON can hold it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


@verb.command("plan")
def plan(
    profile: str = typer.Option(..., "--profile", help="Latency profile (CSV), or fitted:MODEL."),
    sku: Sku = "A100-80GB",
    table: Table = None,
    gpus: int = typer.Option(1, "--gpus", min=1, max=1000, help="Number of GPUs."),
    batch: Batch = _BATCH,
    slo_factor: SloFactor = None,
    slo_ms: SloMs = None,
    percentile: Percentile = 95.0,
    per_bucket: PerBucket = False,
    planner: str = typer.Option(
        "divvy",
        "--planner",
        help="divvy | paris[:knee=..,rounding=..] | homogeneous[:K] | random | exhaustive",
    ),
    knee: str = typer.Option("", "--knee", help="PARIS: utilisation | throughput | marginal."),
    rounding: str = typer.Option("", "--rounding", help="PARIS: floor | largest-remainder."),
    dispatcher: str = typer.Option(
        "divvy", "--dispatcher", help="divvy | elsa[:alpha=,beta=] | fifs | jsq | pow2 | least-gpc"
    ),
    seeds: Seeds = 5,
    seed: Seed = 0,
    queries: Queries = 12_000,
    arrivals: Arrivals = "poisson",
    form: str | None = typer.Option(None, "--emit", help="mig-parted | nvidia-smi | k8s | rayserve"),
    events: Events = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Plan the slices of one model on equal GPUs, and prove the rate by replay on fresh seeds."""
    from divvy.cli.slice_plan import Goal, Target, Traffic, run_plan

    run_plan(
        profile,
        Target(sku, table, gpus),
        Goal(slo_factor, slo_ms, percentile, per_bucket),
        Traffic(batch, arrivals, queries, seeds, seed),
        (_with_paris(planner, knee, rounding), dispatcher),
        form,
        events,
        Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate),
    )


def _with_paris(planner: str, knee: str, rounding: str) -> str:
    """Return the planner's text with PARIS's options added."""
    added = [f"{key}={value}" for key, value in (("knee", knee), ("rounding", rounding)) if value]
    if added and planner.partition(":")[0] != "paris":
        raise InputError.one(
            "paris-option", "--knee and --rounding are of PARIS", path="--planner", allowed="paris"
        )
    return planner + (":" if ":" not in planner else ",") + ",".join(added) if added else planner


@verb.command("compare")
def compare(
    profile: str = typer.Option(..., "--profile", help="Directory of profiles, one profile, or fitted."),
    sku: Sku = "A100-80GB",
    table: Table = None,
    gpus: str = typer.Option("1,4,8", "--gpus", help="Numbers of GPUs, comma-separated."),
    planners: str = typer.Option("divvy,paris,homogeneous,random", "--planners", help="Comma-separated."),
    dispatchers: str = typer.Option(
        "divvy,elsa,fifs,jsq,pow2,least-gpc", "--dispatchers", help="Comma-separated."
    ),
    batch: Batch = _BATCH,
    slo_factor: SloFactor = None,
    slo_ms: SloMs = None,
    percentile: Percentile = 95.0,
    per_bucket: PerBucket = False,
    seeds: Seeds = 5,
    seed: Seed = 0,
    queries: Queries = 12_000,
    arrivals: Arrivals = "poisson",
    plot: Path | None = typer.Option(None, "--plot", help="Write charts (SVG) to this directory."),
    events: Events = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Compare every planner x dispatcher on the same streams: rates, shares of the bound, wins and losses."""
    from divvy.cli.slice_compare import run_compare
    from divvy.cli.slice_plan import Goal, Traffic

    run_compare(
        profile,
        sku,
        table,
        gpus,
        Goal(slo_factor, slo_ms, percentile, per_bucket),
        Traffic(batch, arrivals, queries, seeds, seed),
        (planners, dispatchers),
        plot,
        events,
        Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate),
    )


@verb.command("pack")
def pack(
    profile: str = typer.Option(..., "--profile", help="Directory of latency profiles (CSV), or fitted."),
    scenario: Path = typer.Option(..., "--scenario", help="CSV: model,rate_qps,slo_ms[,percentile]."),
    sku: Sku = "A100-80GB",
    table: Table = None,
    gpus: int | None = typer.Option(
        None, "--gpus", min=1, max=1000, help="Most headroom on so many; else the fewest."
    ),
    seeds: int = typer.Option(3, "--seeds", min=1, max=100, help="Seeds to search on, and to confirm on."),
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Pack several models on one fleet: fewest GPUs, or most headroom; every objective checked by replay."""
    from divvy.cli.slice_pack import run_pack

    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    run_pack(profile, scenario, sku, table, gpus, seeds, output)


@verb.command("apply")
def apply(
    plan: Path = typer.Argument(help="Plan: the JSON of divvy slices plan or pack."),
    table: Table = None,
    yes: bool = typer.Option(False, "--yes", help="Carry it out; without it, only show what would change."),
    driver: str = typer.Option("smi", "--driver", help="smi (nvidia-smi) or nvml."),
    emulate: Path | None = typer.Option(
        None, "--emulate", help="Use the EMULATOR instead of a GPU, with its state in this file."
    ),
    state: Path = typer.Option(
        Path("divvy-slices-change.json"), "--state", help="Where a change that stops is kept, to go on."
    ),
    change: str = typer.Option("server", "--change", help="What is restarted: bare | server | kubernetes."),
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Cut the GPUs of this machine as a plan says: shows the steps and their price; --yes does them."""
    from divvy.cli.slice_apply import run_apply

    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    run_apply(plan, table, driver, emulate, state, change, yes=yes, output=output)


@verb.command("profile")
def profile(
    server: str = typer.Option("", "--server", help="URL of an Open Inference Protocol server (KServe v2)."),
    model: str = typer.Option("", "--model", help="Name of the model on it."),
    batches: str = typer.Option("1,2,4,8,16,32", "--batches", help="Batch sizes, comma-separated."),
    gpcs: str = typer.Option("7", "--slice", help="The slice it runs on: compute slices or a profile name."),
    processes: int = typer.Option(1, "--processes", min=1, help="Server processes that share the slice."),
    repeats: int = typer.Option(30, "--repeats", min=1, help="Requests per batch size and process."),
    free: int = typer.Option(1, "--free-dimension", min=1, help="Size of free dimensions but the batch."),
    to: Path | None = typer.Option(None, "--output", help="Write the profile (CSV) here."),
    check: str = typer.Option("", "--check", help="Measure nothing: say what is odd about this profile."),
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Measure how long a real server takes for each batch size, as a profile for plan, compare and pack."""
    from divvy.cli.slice_profile import run_check, run_profile

    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if check:
        run_check(check, output)
        return
    if not server or not model:
        missing = "--model" if server else "--server"
        raise InputError.one(
            "missing", f"{missing} is needed", path=missing, fix="or look at one: --check FILE"
        )
    run_profile(server, model, batches, gpcs, processes, repeats, free, to, output)


@verb.command("drift")
def drift(
    plan: Path = typer.Argument(help="Plan that is in force: the JSON of divvy slices plan."),
    seen: Path = typer.Option(..., "--seen", help="Batch sizes seen: one per line, or batch,count."),
    rate: float = typer.Option(..., "--rate", min=0, help="Queries per second seen."),
    new: Path | None = typer.Option(None, "--new", help="A new plan, made for the traffic seen."),
    hysteresis: float = typer.Option(0.1, "--hysteresis", min=0, help="Margin of the new plan."),
    horizon: float = typer.Option(86_400.0, "--horizon", min=0, help="Seconds that the traffic will stay."),
    since: float = typer.Option(1e9, "--since", min=0, help="Seconds since the last change."),
    change: str = typer.Option("server", "--change", help="What is restarted: bare | server | kubernetes."),
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Say whether traffic has moved away from a plan, and whether a new plan pays for its change."""
    from divvy.cli.slice_drift import Patience, run_drift

    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    run_drift(plan, seen, rate, new, Patience(hysteresis, horizon, since), change, output)
