"""Cost on Slurm: how long a cycle takes and what it asks of slurmctld, with 10,000 jobs waiting."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from divvy.adapters.slurm.sandbox import Sandbox
from divvy.cli.bench_row import Row, figure, median, quantile
from divvy.cli.bench_slurm_live import GPUS, NODES, PER_NODE, Live, settings_for, started
from divvy.fleet.budget import read_budget

Announce = Callable[[str], None]

WAITING: Final = 10_000
_ACCOUNTS: Final = ("one", "two", "three", "four")
_CALL: Final = re.compile(r"^\s*(REQUEST_\w+)\s*\(\s*\d+\)\s*count:(\d+)", re.MULTILINE)
_OWN: Final = frozenset({"REQUEST_STATS_INFO"})


def calls(slurm: Sandbox) -> dict[str, int]:
    """Return how many requests of each type slurmctld has answered."""
    return {name: int(count) for name, count in _CALL.findall(slurm.run("sdiag")) if name not in _OWN}


def rows(*, quick: bool, announce: Announce) -> Iterator[Row]:
    """Yield the figures of the cost."""
    waiting = 400 if quick else WAITING
    shares: dict[str, object] = {name: {"share": 25, "slurm": [name]} for name in _ACCOUNTS}
    budget = read_budget({"accounts": shares | {"unfunded": {"share": 0}}})
    with tempfile.TemporaryDirectory() as directory:
        heartbeat = Path(directory) / "heartbeat"
        announce("cost: starting 64 nodes")
        with started(_ACCOUNTS, heartbeat) as slurm:
            live = Live(slurm, budget, settings_for(slurm, heartbeat, poll=1_000))
            try:
                yield from _measure(live, waiting, announce, rounds=2 if quick else 15)
            finally:
                live.close()


def _measure(live: Live, waiting: int, announce: Announce, rounds: int) -> Iterator[Row]:
    slurm = live.slurm
    announce(f"cost: filling {GPUS} GPUs and queueing {waiting} jobs")
    sleep = ("--wrap", "sleep 3600", "-o", "/dev/null")
    for number in range(NODES):
        account = _ACCOUNTS[number % len(_ACCOUNTS)]
        shape = (f"--gres=gpu:h100:{PER_NODE}", "-N1", "-A", account)
        slurm.run("sbatch", *shape, "--comment", "divvy: min_runtime=4h resumable", *sleep)
    while len(live.notes.started) < NODES:
        live.step()
    each = waiting // len(_ACCOUNTS)
    for account in _ACCOUNTS:
        slurm.run(
            "sbatch", f"--array=1-{each}", "--gres=gpu:h100:1", "-A", account, *sleep, timeout_seconds=120
        )
    while len(live.state.snapshot.jobs.live) < NODES + each * len(_ACCOUNTS):
        live.step()
    announce("cost: steady cycles")
    yield from _steady(live, waiting, rounds)
    announce("cost: cycles that release")
    yield from _busy(live, waiting, rounds=min(rounds, 6))


def _cycle(live: Live) -> tuple[float, float, float]:
    """Run one cycle whole: the look, the passes that follow it, and the commands; ms each."""
    looks, orders, steps = len(live.watched.looks), len(live.watched.orders), len(live.steps)
    while len(live.watched.looks) == looks:
        live.step(0.02)
    live.step(0.02)
    return (
        live.watched.looks[looks],
        max(live.steps[steps:]),
        sum(live.watched.orders[orders:]),
    )


def _steady(live: Live, waiting: int, rounds: int) -> Iterator[Row]:
    case = f"{waiting} waiting jobs, nothing to do"
    before = calls(live.slurm)
    first = len(live.watched.looks)
    cycles = [_cycle(live) for _ in range(rounds)]
    looks = len(live.watched.looks) - first
    after = calls(live.slurm)
    asked = {name: (after[name] - before.get(name, 0)) / looks for name in after}
    asked = {name: count for name, count in asked.items() if count >= 0.5}
    whole = [sum(cycle) / 1000 for cycle in cycles]
    spread = (quantile(whole, 0.0), quantile(whole, 1.0))
    yield figure(
        case,
        "cycle",
        median(whole),
        "s",
        interval=spread,
        n=rounds,
        target=2.0,
        note="look, pass and commands",
    )
    for place, name in enumerate(("look", "pass", "commands")):
        yield figure(case, name, median([cycle[place] for cycle in cycles]), "ms", n=rounds)
    types = ", ".join(f"{name} {count:.1f}" for name, count in sorted(asked.items()))
    yield figure(
        case, "requests to slurmctld per cycle", sum(asked.values()), "", n=looks, note=f"sdiag: {types}"
    )


def _busy(live: Live, waiting: int, rounds: int) -> Iterator[Row]:
    """Measure cycles in which 8 nodes come free and 64 jobs of one GPU are released."""
    case = f"{waiting} waiting jobs, 64 GPUs come free"
    running = [
        name for name, row in live.state.snapshot.jobs.row.items() if live.state.snapshot.jobs.rate[row]
    ]
    whole: list[float] = []
    delays: list[float] = []
    asked = 0
    for number in range(min(rounds, NODES // 8)):
        victims = running[number * 8 : number * 8 + 8]
        before, began = calls(live.slurm), len(live.notes.started)
        live.slurm.run("scancel", *victims)
        cycles: list[tuple[float, float, float]] = []
        while len(live.notes.started) < began + 8 * PER_NODE and len(cycles) < 60:
            cycles.append(_cycle(live))
        after = calls(live.slurm)
        whole.append(max(sum(cycle) for cycle in cycles) / 1000)
        delays.append(float(len(cycles)))
        asked += sum(after.values()) - sum(before.values())
    yield figure(
        case,
        "slowest cycle",
        median(whole),
        "s",
        interval=(min(whole), max(whole)),
        n=len(whole),
        target=2.0,
        note="until the 64 jobs run: the look, the pass and the commands of the slowest cycle",
    )
    yield figure(case, "cycles until all run", median(delays), "", n=len(delays))
    note = "all of slurmctld's requests, those of its own nodes and of the jobs included"
    yield figure(
        case, "requests per started job", asked / (len(whole) * 8 * PER_NODE), "", n=len(whole), note=note
    )
