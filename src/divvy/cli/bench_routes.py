"""The figures of the routes: every target that needs no live transfer, as rows of ``divvy.bench/1``."""

from __future__ import annotations

import math
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from divvy.cli.bench_routes_claims import claim_rows, truth_rows
from divvy.cli.bench_row import Row, find_data, row
from divvy.errors import DivvyError
from divvy.fleet.topology.graph import Topology
from divvy.fleet.topology.matrix import read_matrix
from divvy.fleet.topology.read import build
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.divvy import plan as plan_batch
from divvy.planners.transfers.online import Online
from divvy.planners.transfers.plan import RoutePlan, Transfer
from divvy.planners.transfers.registry import PEERS, PLANNERS
from divvy.planners.transfers.roads import Roads, roads
from divvy.sim.flows.batches import random_batch
from divvy.sim.flows.compare import Result, compare

_FOLDERS: Final = ("topo", "nccl_xml", "hwloc_xml", "cluster_topology")
_NVL72: Final = """switches: {spine: {switches: [leaf]}}
blocks:
- {switch: leaf, nodes: ["tray[01-18]"], annotations: {accelerator.topology/domain: nvl72}}
"""


def rows(*, quick: bool = False, announce: Callable[[str], None] = lambda _: None) -> Iterator[Row]:
    """Yield every figure of the routes; a quick run has fewer seeds and batch sizes.

    Args:
        quick: Whether to stay within a minute.
        announce: Told what is being measured.
    """
    topologies_at = find_data("topo")
    data = None if topologies_at is None else topologies_at.parent
    topologies: dict[str, Topology] = {}
    if data is None:
        yield row(
            "samples",
            "divvy",
            "found",
            0.0,
            "files",
            note="no ../shared/data here: rows over samples left out",
        )
    else:
        announce("inputs")
        yield from _inputs(data, topologies, quick=quick)
        announce("planner against the bound and the peers")
        yield from _planning(topologies, quick=quick, announce=announce)
    announce("speed")
    yield from _speed(quick=quick)
    announce("truths")
    yield from truth_rows()
    announce("claims")
    yield from claim_rows()
    for case, text in _LIVE.items():
        yield row(case, "divvy", "error", None, "", note=f"not measured here: {text}")


_LIVE: Final = {
    "fluid simulator against rate-limited links": "divvy bench transfers measures it",
    "cost prediction on real transfers": "divvy bench transfers measures it",
    "rail slowed or cut in flight": "divvy bench transfers measures it",
}


def _inputs(data: Path, topologies: dict[str, Topology], *, quick: bool) -> Iterator[Row]:
    """Parse every sample; then damage the matrices at random and look for wrong links without a warning."""
    whole = failed = damaged = silent = 0
    for path in sorted(p for folder in _FOLDERS for p in (data / folder).glob("*") if p.name != "SOURCE.txt"):
        try:
            topo = build([(path.name, path.read_text(encoding="utf-8"))])
        except DivvyError:
            failed += 1
            continue
        topologies[path.name] = topo
        is_cut = "TRUNCATED" in path.name or "EXCERPT" in path.name
        whole += not is_cut
        damaged += is_cut
        silent += is_cut and not topo.findings
    share = whole / max(1, whole + failed)
    yield row(
        "complete samples", "divvy", "parsed", share, "fraction", target=1.0, met=share >= 1, n=whole + failed
    )
    told = 1 - silent / max(1, damaged)
    yield row("truncated samples", "divvy", "warned", told, "fraction", target=1.0, met=told >= 1, n=damaged)
    tried, wrong = _fuzz(sorted((data / "topo").glob("*.txt")), 20 if quick else 200)
    note = "cells cut, blanked, fused, moved; wrong: another label, no warning names its row and column"
    yield row(
        "damaged matrices",
        "divvy",
        "wrong links in silence",
        wrong,
        "links",
        target=0,
        met=wrong == 0,
        n=tried,
        note=note,
    )


def _fuzz(paths: Sequence[Path], seeds: int) -> tuple[int, int]:
    """Return how many damaged matrices were read, and how many wrong links were not reported."""
    tried = wrong = 0
    for path in paths:
        text = path.read_text(encoding="utf-8")
        truth = read_matrix("whole", text).labels
        for seed in range(seeds):
            tried += 1
            try:
                reading = read_matrix("damaged", _damage(text, random.Random(seed)))  # noqa: S311 - a test pattern
            except DivvyError:
                continue
            for (a, b), label in reading.labels.items():
                real = truth.get((a, b)) or truth.get((b, a))
                named = any(a in f.where and b in f.where for f in reading.findings)
                wrong += bool(real and real != label and not named)
    return tried, wrong


def _damage(text: str, rng: random.Random) -> str:
    """Return the text with one to four lines damaged."""
    lines = text.splitlines()
    rows_at = [i for i, line in enumerate(lines) if re.match(r"\s*(GPU|NIC|mlx)", line)]
    for _ in range(rng.randint(1, 4)):
        at = rng.choice(rows_at)
        if at >= len(lines):
            continue
        line = lines[at]
        words = list(re.finditer(r"\S+", line))
        if len(words) < 4:
            continue
        word = rng.choice(words[1:-1])
        before, middle, after = line[: word.start()], word.group(), line[word.end() :]
        kind = rng.randrange(6)
        if kind == 0:
            lines[at] = line[: rng.randrange(6, len(line))]
        elif kind == 5:
            lines = [*lines[:at], line[: rng.randrange(6, len(line))]]
        else:
            spoilt = rng.choice(["?", "...", "NVX", "12"])
            lines[at] = (
                before + after,
                before + after.lstrip(),
                before + middle + after.lstrip(),
                before + spoilt + after,
            )[kind - 1]
    return "\n".join(lines)


def _planning(
    topologies: dict[str, Topology], *, quick: bool, announce: Callable[[str], None]
) -> Iterator[Row]:
    """Run all planners over all topologies and batch sizes; report against bound and peers."""
    sizes, seeds = ((4, 16), (1,)) if quick else ((4, 16, 64), (1, 2, 3))
    found: list[tuple[int, int, Result]] = []
    skipped: set[str] = set()
    for name, topo in topologies.items():
        announce(name)
        ways = roads(topo)
        large = len(ways.names) > 1000
        for count in sizes:
            for seed in seeds[:1] if large else seeds:
                try:
                    batch = random_batch(topo, f"random:n={count},seed={seed}")
                except DivvyError:
                    skipped.add(name)
                    continue
                names = list(PLANNERS) if not (large and count == 64) else ["divvy", "divvy-online"]
                results, _ = compare(name, ways, batch, names, seed)
                found += [(count, seed, result) for result in results]
    own = {(r.topology, count, seed): r for count, seed, r in found if r.planner == "divvy"}
    ratios = [r.of_bound for r in own.values()]
    lacking = ", ".join(sorted(skipped))
    count = len(topologies) - len(skipped)
    note = f"4 to 64 transfers of 16 MB to 4 GB, {count} topologies; without a pair: {lacking}"
    yield _mean("divvy", ratios, target=1.10, note=note)
    worst = max(own.values(), key=lambda r: r.of_bound)
    yield row(
        "makespan over bound",
        "divvy",
        "worst",
        worst.of_bound,
        "ratio",
        target=1.5,
        met=worst.of_bound <= 1.5,
        n=len(ratios),
        note=worst.topology,
    )
    for planner in ("divvy-online", *PEERS):
        yield _mean(planner, [r.of_bound for _, _, r in found if r.planner == planner], target=None, note="")
    for planner in PEERS:
        both = [
            r.makespan_s / own[r.topology, count, seed].makespan_s
            for count, seed, r in found
            if r.planner == planner
        ]
        yield from _against(planner, both)


def _mean(planner: str, ratios: Sequence[float], *, target: float | None, note: str) -> Row:
    """Return the geometric mean of makespan over bound with its 95% interval."""
    logs = [math.log(r) for r in ratios]
    mean = statistics.fmean(logs)
    half = 1.96 * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    value = math.exp(mean)
    return row(
        "makespan over bound",
        planner,
        "geometric mean",
        value,
        "ratio",
        target=target,
        met=value <= target if target is not None else None,
        interval=(math.exp(mean - half), math.exp(mean + half)),
        n=len(ratios),
        note=note,
    )


def _against(planner: str, both: Sequence[float]) -> Iterator[Row]:
    """Return the distribution of a peer's makespan over the own one on the same work."""
    ordered = sorted(both)
    least = ordered[0]
    case = "peer's makespan over divvy's"
    yield row(
        case,
        planner,
        "least",
        least,
        "ratio",
        target=1 / 1.02,
        met=least >= 1 / 1.02,
        n=len(both),
        note="never more than 2% better",
    )
    for name, share in (("p25", 0.25), ("median", 0.5), ("p75", 0.75), ("largest", 1.0)):
        yield row(
            case,
            planner,
            name,
            ordered[min(len(ordered) - 1, int(share * len(ordered)))],
            "ratio",
            n=len(both),
        )


def _speed(*, quick: bool) -> Iterator[Row]:
    """Time the planners on 64 transfers among 72 GPUs of one NVLink domain."""
    topo = build([("nvl72", _NVL72)])
    ways = roads(topo)
    finder = Finder(ways)
    spans: dict[tuple[str, str], list[float]] = {}

    def clocked(measure: str, work: Callable[[], object]) -> None:
        wall, used = time.perf_counter(), time.process_time()
        work()
        spans.setdefault((measure, "wall clock"), []).append((time.perf_counter() - wall) * 1000)
        spans.setdefault((measure, "processor"), []).append((time.process_time() - used) * 1000)

    plan_batch(ways, finder, random_batch(topo, "random:n=64,seed=99"))  # the first run imports SciPy
    for seed in range(3 if quick else 7):
        batch = random_batch(topo, f"random:n=64,seed={seed}")
        known = Online(ways, finder)
        for transfer in batch:
            known.options(transfer.source, transfer.target)
        order = sorted(range(len(batch)), key=lambda i: -batch[i].size_bytes)
        for _ in range(3):
            clocked("online plan", partial(_place_all, ways, finder, known, batch, order))
        clocked("batch program", partial(plan_batch, ways, finder, batch))
    notes = {"online plan": "routes known", "batch program": "with its search for routes"}
    rest = "interval is least and most; the target is for the wall clock of an idle machine"
    for (measure, clock), times in spans.items():
        limit = 5.0 if measure == "online plan" else 100.0
        middle, span, count = statistics.median(times), (min(times), max(times)), len(times)
        where = f"{measure}, {clock}"
        met = middle <= limit
        yield row(
            "72 GPUs, 64 transfers",
            "divvy",
            where,
            middle,
            "ms",
            target=limit,
            met=met,
            interval=span,
            n=count,
            note=f"{notes[measure]}; {rest}",
        )


def _place_all(
    ways: Roads, finder: Finder, known: Online, batch: Sequence[Transfer], order: Sequence[int]
) -> RoutePlan:
    """Plan a batch one by one, as if each transfer had just come."""
    fresh = Online(ways, finder)
    fresh.adopt(known)
    out = RoutePlan("divvy-online")
    for index in order:
        fresh.place(index, batch[index], out)
    return out
