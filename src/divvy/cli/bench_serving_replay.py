"""Replay beside life: the p99 that the replay predicts, a check at low load, and MLPerf's opinion."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np

from divvy.adapters.lab.lab import Lab
from divvy.adapters.load.mlperf import run_server_scenario
from divvy.cli.bench_row import Row, figure
from divvy.cli.bench_serving_contenders import Place
from divvy.cli.bench_serving_divvy import ROUTERS, served, write_place
from divvy.cli.bench_serving_search import Fire, make_plan, sender
from divvy.cli.bench_serving_stage import FIRST_SEED, Deployed, Stage
from divvy.cli.lab_slices import make_specs
from divvy.errors import DivvyError
from divvy.sim.queries.judge import percentile_us

#: Shares of the expected rate at which the prediction is tried, and the low load of the check.
_SHARES: Final = (0.6, 0.8)
_LOW: Final = 0.15


def prediction_rows(stage: Stage, *, seeds: int, queries: int, quick: bool) -> Iterator[Row]:
    """Yield by rule how far the replay's p99 is from the live one, at two loads, and the p50 at a low one."""
    for contender in ROUTERS:
        deployed = stage.deploy(contender.rule, equal=False)
        with ExitStack() as stack:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            lab = stack.enter_context(Lab())
            specs = make_specs(stage.request.sku, deployed.layouts, stage.profile, largest=32)
            place = Place(stage, deployed, lab.start(specs), home)
            url, _ = stack.enter_context(served(write_place(place)))
            fire = sender(url, place.running)
            for share in (_LOW, *_SHARES):
                yield _compared(stage, deployed, contender.name, fire, share, seeds, queries)
            if contender is ROUTERS[0]:
                yield _mlperf_row(stage, deployed, contender.name, url, quick=quick)


def _compared(
    stage: Stage, deployed: Deployed, who: str, fire: Fire, share: float, seeds: int, queries: int
) -> Row:
    """Return one comparison: live and replayed latencies of the same arrivals, all seeds together."""
    rate, percent = deployed.expected_qps * share, 50 if share == _LOW else 99
    live, replayed, failed = [], [], 0
    queries = queries // 3 if share == _LOW else queries
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        plan = make_plan(stage, rate, seed, queries, whole=True)
        volley = fire(plan)
        failed += int((~volley.good).sum())
        live.append(volley.latency_us)
        replayed.append(stage.replayed(deployed.choice, rate, seed, queries))
    mine, expected = (percentile_us(np.concatenate(part), percent) / 1e3 for part in (live, replayed))
    return figure(
        stage.case.name,
        f"replay's p{percent} against the live one, {share:.0%} of the expected rate",
        abs(expected / mine - 1),
        "relative",
        contender=who,
        n=seeds,
        target=0.15,
        note=f"live {mine:.1f} ms, replay {expected:.1f} ms at {rate:.1f} queries/s on {deployed.text};"
        f" {queries} queries a seed, {failed} failed" + (" (null check)" if share == _LOW else ""),
    )


def _mlperf_row(stage: Stage, deployed: Deployed, who: str, url: str, *, quick: bool) -> Row:
    """Return the p99 that MLPerf's generator sees, its own arrivals, at the lower of the two loads."""
    rate = deployed.expected_qps * _SHARES[0]
    slo_ms = stage.request.slo_us / 1e3
    measure = f"p99 by MLPerf loadgen, {_SHARES[0]:.0%} of the expected rate"
    plan = make_plan(stage, rate, FIRST_SEED, 1_000, whole=True)
    try:
        found = run_server_scenario(url, plan.path, plan.batches.tolist(), rate, slo_ms, 3 if quick else 15)
    except DivvyError as error:
        return figure(stage.case.name, measure, None, "ms", contender=who, n=0, note=str(error))
    return figure(
        stage.case.name,
        measure,
        found["p99_ms"],
        "ms",
        contender=who,
        note=f"Server scenario, {rate:.1f} queries/s, objective {slo_ms:.0f} ms: p50 {found['p50_ms']:.1f},"
        f" p95 {found['p95_ms']:.1f}, {found['failed']} failed, {'' if found['valid'] else 'not '}valid",
    )
