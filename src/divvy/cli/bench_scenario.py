"""`divvy bench scenario`: one plan beside three tools that do not know of each other, on the same work."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from divvy.cli.bench_row import Row, figure, find_data
from divvy.cli.scenario_file import read_scenario
from divvy.sim.whole.compare import ONE, compare

Announce = Callable[[str], None]

#: Rates are such that services need about a fifth of the fleet at their peak by the own planner's layouts.
#: The models of the two pools of the pairing stand in for a language model: their profile is measured, the
#: bytes of a cache are those of 4,096 tokens of an 8-billion-parameter model (128 KiB per token).
_SERVICES: Final = """
[[services]]
name = "images"
account = "serving"
sku = "A100-80GB"
profile = "fitted:resnet50"
rate_qps = {images}
slo = 60
most = {most}
[[services]]
name = "prefill"
account = "serving"
sku = "A100-80GB"
profile = "fitted:bert"
rate_qps = {pool}
slo = 400
most = {most}
[[services]]
name = "decode"
account = "serving"
sku = "A100-80GB"
profile = "fitted:bert"
rate_qps = {pool}
slo = 400
most = {most}
[[pairings]]
prefill = "prefill"
decode = "decode"
kv_bytes = "512MiB"
"""
_LABS: Final = ("vision", "language", "speech", "robotics", "biology", "systems")

#: Measure, unit, whether more is better, what it is.
_MEASURES: Final = (
    ("occupancy", "", True, "of all GPUs"),
    ("training.useful_gpu_hours", "GPU-h", True, "restored, redone and lost work left out"),
    ("training.delivered_over_owed", "", True, "hour by hour, against shares of the whole fleet"),
    ("training.delivered_over_owed_period", "", True, "over the window"),
    ("training.worst_account", "", True, "over the window, accounts owed 20 GPU-hours or more"),
    ("training.finished", "jobs", True, "training jobs that ended in the window"),
    ("training.lost_fraction", "", False, "thrown away or spent on restoring, of what training held"),
    ("services.held_gpu_hours", "GPU-h", False, "held by services"),
    ("services.in_time", "", True, "queries within their objective"),
    ("services.worst_in_time", "", True, "the same, worst service"),
    ("services.objective_held", "", True, "of the time: p95 of every batch bucket"),
    ("transfers.prefill-decode.mean_ms", "ms", False, "one cache, simulated flows"),
    ("transfers.prefill-decode.p95_ms", "ms", False, "one cache, simulated flows"),
    ("transfers.prefill-decode.last_ms", "ms", False, "the last of a moment's caches, mean over moments"),
    ("transfers.prefill-decode.blind", "", False, "sampled moments without a place on either side"),
)


def rows(*, quick: bool, announce: Announce, seeds: int | None = None) -> Iterator[Row]:
    """Yield every figure of every arrangement, and the paired difference of one plan to each."""
    text, trace = scenario_text(quick=quick)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "scenario.toml"
        path.write_text(text, encoding="utf-8")
        plan = read_scenario(path, announce)
        document = compare(plan.tools, range(1, (seeds or plan.seeds) + 1), announce)
    yield from rows_of(document, f"{document['fleet']['gpus']} GPUs, {trace}")


def scenario_text(*, quick: bool) -> tuple[str, str]:
    """Return the scenario that is measured, and the name of its trace: a recorded one where it is there."""
    philly = find_data("traces/philly")
    files = sorted(philly.glob("*.csv")) if philly is not None else []
    nodes, images, pool, most = (2, 350, 60, 4) if quick else (8, 900, 150, 12)
    if files and not quick:
        # Every fourth job: demand of the trace is 7 times this fleet, then about twice.
        training = f'[training]\ntrace = "{files[0]}"\nevery = 4\nfirst_day = 20\n'
        accounts = _philly_accounts(files[0])
        name = "every fourth job of Philly, days 20 to 24"
    else:
        training = '[training]\ntrace = "synthetic"\n'
        shares = dict(zip(_LABS, (27, 17, 11, 7, 5, 3), strict=True))
        accounts = "".join(f"[accounts.{lab}]\nshare = {share}\n" for lab, share in shares.items())
        name = "synthetic trace"
    span = 'days = 1\nwarmup = "6h"\nseeds = 2\n' if quick else 'days = 3\nwarmup = "1d"\nseeds = 5\n'
    head = f'[fleet]\nnodes = "{nodes}x8@A100-80GB"\n'
    if quick:
        head += 'slices = "homogeneous"\n'
    services = _SERVICES.format(images=images, pool=pool, most=most)
    return f"{head}{accounts}[accounts.serving]\nshare = 30\n{services}{training}[replay]\n{span}", name


def _philly_accounts(file: Path) -> str:
    """Return accounts of the trace with shares in proportion to their GPU time, 70% together."""
    from divvy.sim.traces import AUTO, read_trace  # noqa: PLC0415 - only the whole run reads the trace

    demand = read_trace(file.read_bytes(), AUTO, file.name).gpu_time()
    total = sum(demand.values())
    lines = []
    for place, (name, time) in enumerate(demand.items()):
        share = int(70_000 * time / total) / 1_000
        lines.append(f'[accounts.vc{place}]\nshare = {share}\nslurm = ["{name}"]\n')
    return "".join(lines)


def rows_of(document: dict[str, Any], case: str) -> Iterator[Row]:
    """Yield the rows of a document ``divvy.scenario/1``."""
    seeds = len(document["seeds"])
    paired = {(row["against"], row["measure"]): row for row in document["paired"]}
    for one in document["arrangements"]:
        fixed = one["fixed_gpus"]
        held = f"; fixed: {', '.join(f'{k} {v}' for k, v in fixed.items())}" if fixed else ""
        for measure, unit, more, what in _MEASURES:
            got = one["figures"].get(measure)
            if got is None:
                continue
            yield figure(
                case, measure, got["value"], unit, contender=one["name"], interval=_edges(got["interval"]),
                n=seeds, note=f"{what}{held}",
            )  # fmt: skip
            if one["name"] != ONE:
                yield _difference(case, one["name"], measure, unit, paired[one["name"], measure], more=more)


def _difference(case: str, name: str, measure: str, unit: str, row: dict[str, Any], *, more: bool) -> Row:
    """Return the row of a paired difference; the target is not to be worse."""
    return figure(
        case,
        f"{measure}, one plan less it",
        row["difference"],
        unit,
        contender=name,
        interval=_edges(row["interval"]),
        n=row["n"],
        target=0.0,
        at_least=more,
        note="paired by seed, 95% interval; the target is not to be worse",
    )


def _edges(pair: list[float | None]) -> tuple[float, float] | None:
    low, high = pair
    return None if low is None or high is None else (low, high)
