"""Waits on a real Slurm beside those of the simulator, on the same jobs of a trace with time compressed."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from scipy.stats import spearmanr

from divvy.adapters.slurm.contract import Contract, write_contract
from divvy.adapters.slurm.sandbox import Sandbox
from divvy.cli.bench_row import Row, figure, find_data, median
from divvy.cli.bench_slurm_live import GPUS, NODES, PER_NODE, Live, settings_for, started
from divvy.fleet.budget import Budget, Policy
from divvy.fleet.job import JobSpec
from divvy.fleet.node import Node
from divvy.planners.jobs import registry
from divvy.sim.accounts import claim, equal_shares
from divvy.sim.contracts import ContractRule, Contracts, Workload
from divvy.sim.engine import Pace
from divvy.sim.replay import replay
from divvy.sim.scenario import Scenario
from divvy.sim.traces.philly import read_philly
from divvy.sim.traces.trace import Trace, TraceJob
from divvy.units import HOUR, MINUTE, SECOND

Announce = Callable[[str], None]

JOBS: Final = 500
_LONGEST: Final = 8 * HOUR
#: The least wait, in the simulator or live, of a job that was contended: below it, cycles are measured.
CONTENDED: Final = 5 * SECOND
_PER_MINUTE: Final = 5
#: Jobs and seconds of a quick run: it shows that everything works; too few jobs are contended for a figure.
_QUICK: Final = (40, 2.0)


class Sample(NamedTuple):
    """Jobs of a trace in compressed time.

    Attributes:
        trace: The jobs.
        budget: Equal shares, times compressed.
        factor: Trace time over live time.
        source: Where they come from.
    """

    trace: Trace
    budget: Budget
    factor: float
    source: str


def sample(count: int, seconds: float) -> Sample | None:
    """Return jobs that keep 512 GPUs busy for about so long, submitted within half of it; None without data.

    Jobs of the Philly trace at equal distances, at most 32 GPUs and 8 hours each: a fifth of them of one GPU,
    the rest of 4 or more (95% of the trace are of one GPU, and 500 of them would not fill 512 GPUs). Arrivals
    are drawn closer together until the demand is twice the supply; runtimes and all times of the policy
    shrink by one factor.
    """
    path = find_data("traces/philly/philly-2017-09-10.csv")
    if path is None:
        return None
    whole = [job for job in read_philly(path.read_bytes(), path.name).jobs if job.gpus <= 32]
    large = _spread([job for job in whole if job.gpus >= 4], count - count // 5)
    chosen = [*large, *_spread([job for job in whole if job.gpus == 1], count // 5)]
    chosen.sort(key=lambda job: (job.submit, job.id))
    work = sum(min(job.runtime, _LONGEST) * job.gpus for job in chosen)
    factor = work / GPUS / (seconds * SECOND)
    span = chosen[-1].submit - chosen[0].submit
    jobs = [
        TraceJob(
            id=f"t{number}",
            submit=round((job.submit - chosen[0].submit) * seconds * SECOND / 2 / span),
            runtime=max(round(min(job.runtime, _LONGEST) / factor / SECOND), 1) * SECOND,
            gpus=job.gpus,
            account=f"vc{job.account[-6:]}".lower(),
            author="root",
            per_node=PER_NODE if job.gpus > PER_NODE and not job.gpus % PER_NODE else 0,
        )
        for number, job in enumerate(chosen)
    ]
    trace = Trace(tuple(jobs), (), ())
    policy = Policy()
    shrunk = {
        name: max(round(getattr(policy, name) / factor), 1)
        for name in (
            "lookback",
            "taper",
            "patience",
            "debug_patience",
            "max_min_runtime",
            "debug_max_min_runtime",
        )
    }
    budget, _ = equal_shares(trace, replace(policy, **shrunk))
    return Sample(trace, budget, factor, f"{count} jobs of {path.name}")


def _spread(jobs: Sequence[TraceJob], count: int) -> list[TraceJob]:
    """Return so many jobs at equal distances."""
    return [jobs[place * len(jobs) // count] for place in range(count)]


def _scenario(made: Sample, factor: float = 1.0) -> Scenario:
    """Return the simulator's scenario; ``factor`` stretches its time."""
    budget, claims = claim(made.trace, made.budget)
    shortest = max(round(15 * MINUTE / made.factor), SECOND)
    rule = ContractRule(shortest=shortest, not_resumable=0.0, authors=1)
    nodes = tuple(Node(f"node{number:02d}", PER_NODE) for number in range(1, NODES + 1))
    jobs = tuple(
        job._replace(submit=round(job.submit * factor), runtime=round(job.runtime * factor))
        for job in made.trace.jobs
    )
    pace = Pace(checkpoint=0, restore=0)  # Slurm's delay before a requeued job may start is not modelled
    return Scenario(replace(made.trace, jobs=jobs), nodes, budget, claims, Contracts(rule), pace)


def _simulated(made: Sample, policy: str, workload: Workload, factor: float = 1.0) -> dict[str, float]:
    """Return simulated waits to the first start, live seconds."""
    done = replay(_scenario(made, factor), registry.create(policy), workload=workload)
    return {
        spec.id: (done.record.first_start[row] - workload.submit[row]) / factor / SECOND
        for row, spec in enumerate(workload.spec)
        if done.record.first_start[row] >= 0
    }


def _stretched(workload: Workload, factor: float) -> Workload:
    """Return a workload in stretched time."""
    specs = [
        spec._replace(
            min_runtime=round(spec.min_runtime * factor), time_limit=round(spec.time_limit * factor)
        )
        for spec in workload.spec
    ]
    return Workload(
        specs,
        [round(at * factor) for at in workload.submit],
        workload.debug,
        [round(time * factor) for time in workload.runtime],
        workload.phase,
        workload.index,
    )


def _submission(spec: JobSpec, runtime: int) -> list[str]:
    """Return the sbatch command of a job that sleeps for its true runtime."""
    contract = Contract(spec.min_runtime, resumable=True)
    shape = [f"--gpus={spec.gpus}"]
    if spec.gpus <= PER_NODE:
        shape = ["-N1", f"--gres=gpu:{spec.gpus}"]
    elif spec.per_node:
        shape = [f"-N{spec.gpus // spec.per_node}", f"--gres=gpu:{spec.per_node}"]
    limit = max(-(-spec.time_limit // MINUTE), 1)
    words = ["--comment", write_contract(contract), "-J", spec.id, "-A", spec.account, f"--time={limit}"]
    return [
        "sbatch",
        "--parsable",
        *shape,
        *words,
        "-o",
        "/dev/null",
        "--wrap",
        f"exec sleep {runtime / SECOND:g}",
    ]


class Submitter(threading.Thread):
    """Submits a workload at its times; keeps Slurm's id of each job.

    Args:
        slurm: The sandbox.
        workload: The jobs.
    """

    def __init__(self, slurm: Sandbox, workload: Workload) -> None:
        super().__init__(daemon=True)
        self._slurm = slurm
        self._workload = workload
        self.ids: dict[str, str] = {}
        self.late: list[float] = []
        """By how much each submission was late, s."""

    def run(self) -> None:
        """Submit everything."""
        began = time.monotonic()
        work = self._workload
        for row, spec in enumerate(work.spec):
            due = began + work.submit[row] / SECOND
            time.sleep(max(due - time.monotonic(), 0.0))
            self.late.append(time.monotonic() - due)
            command = _submission(spec, work.runtime[row])
            done = subprocess.run(
                command, env=self._slurm.environment, capture_output=True, text=True, timeout=60, check=True
            )
            self.ids[done.stdout.strip().partition(";")[0]] = spec.id


def waits(*, quick: bool, announce: Announce) -> Iterator[Row]:
    """Yield how live waits under Divvy agree with simulated ones."""
    count, seconds = _QUICK if quick else (JOBS, 300.0)
    made = sample(count, seconds)
    if made is None:
        yield figure("waits", "not measured", None, "", note="the Philly trace is not beside the checkout")
        return
    workload = _scenario(made).workload(0)
    simulated = {policy: _simulated(made, policy, workload) for policy in ("budget", "fifo")}
    with tempfile.TemporaryDirectory() as directory:
        heartbeat = Path(directory) / "heartbeat"
        announce("waits: starting 64 nodes")
        accounts = sorted({spec.account for spec in workload.spec})
        with started(accounts, heartbeat) as slurm:
            live, preemptions, late = _live(slurm, made, workload, heartbeat, announce)
    case = f"{made.source} on 64 x 8 GPUs, time / {made.factor:.0f}"
    note = f"{preemptions} requeues; submissions late by {median(late):.2f} s in the median"
    yield from _agreement(case, live, simulated["budget"], {"fifo": simulated["fifo"]}, note, target=0.9)


def _live(
    slurm: Sandbox, made: Sample, workload: Workload, heartbeat: Path, announce: Announce
) -> tuple[dict[str, float], int, list[float]]:
    """Run the jobs on Slurm under Divvy; return waits to the first start, requeues, lateness."""
    budget = claim(made.trace, made.budget)[0]
    run = Live(slurm, budget, settings_for(slurm, heartbeat, poll=300, warn=0, start_patience=60_000))
    submitter = Submitter(slurm, workload)
    try:
        while not len(run.state.snapshot.nodes):
            run.step()
        submitter.start()
        limit = time.monotonic() + 3_600
        while len(run.notes.ended) < len(workload) and time.monotonic() < limit:
            run.step()
            announce(f"waits: {len(run.notes.ended)} of {len(workload)} jobs have ended")
    finally:
        run.close()
    jobs = run.state.snapshot.jobs
    found = {
        submitter.ids[name]: (at - jobs.submitted[jobs.row[name]]) / SECOND
        for name, at in run.notes.started.items()
        if name in submitter.ids
    }
    return found, run.notes.preemptions, submitter.late


def fairshare(*, quick: bool, announce: Announce) -> Iterator[Row]:
    """Yield how waits on Slurm by itself agree with those of the simulator's fairshare.

    The simulator's constants are those of Slurm's sample configuration; its time is stretched by 5, so that
    its calculation period of 5 minutes is the shortest that Slurm takes, one minute.
    """
    count, seconds = _QUICK if quick else (JOBS, 240.0)
    made = sample(count, seconds)
    if made is None:
        yield figure(
            "fairshare", "not measured", None, "", note="the Philly trace is not beside the checkout"
        )
        return
    workload = _scenario(made).workload(0)
    stretched = _stretched(workload, _PER_MINUTE)
    simulated = {name: _simulated(made, name, stretched, _PER_MINUTE) for name in ("fairshare", "fifo")}
    settings = {
        "PriorityType": "priority/multifactor",
        "PriorityDecayHalfLife": "1-9",
        "PriorityCalcPeriod": "1",
        "PriorityMaxAge": "1-9",
        "PriorityWeightFairshare": "10000",
        "PriorityWeightAge": "1000",
        "PriorityWeightJobSize": "1000",
        "AccountingStorageEnforce": "associations",
    }
    accounts = sorted({spec.account for spec in workload.spec})
    with tempfile.TemporaryDirectory() as directory:
        announce("fairshare: starting 64 nodes")
        with started(accounts, Path(directory) / "none", settings, hold=False) as slurm:
            live = _alone(slurm, workload, announce)
    case = f"{made.source} on 64 x 8 GPUs, time / {made.factor:.0f}, no Divvy"
    note = "multifactor, Fair Tree, backfill; usage is recalculated once a minute"
    yield from _agreement(
        case, live, simulated["fairshare"], {"fifo": simulated["fifo"]}, note, contender="fairshare"
    )


def _alone(slurm: Sandbox, workload: Workload, announce: Announce) -> dict[str, float]:
    """Run the jobs on Slurm by itself; return waits as its accounting tells them."""
    submitter = Submitter(slurm, workload)
    submitter.start()
    while submitter.is_alive() or slurm.run("squeue", "-h", "-t", "PD,R,CG"):
        time.sleep(1)
        announce(f"fairshare: {len(submitter.ids)} of {len(workload)} jobs submitted")
    time.sleep(2)
    environment = {**slurm.environment, "SLURM_TIME_FORMAT": "%s"}
    command = ("sacct", "-X", "-n", "-P", "-a", "-S", "now-1days", "-o", "JobName,Submit,Start")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    rows = [line.split("|") for line in done.stdout.splitlines()]
    return {name: float(int(start) - int(submit)) for name, submit, start in rows if start.isdecimal()}


def _agreement(
    case: str,
    live: Mapping[str, float],
    simulated: Mapping[str, float],
    nulls: Mapping[str, Mapping[str, float]],
    note: str,
    *,
    contender: str = "divvy",
    target: float | None = None,
) -> Iterator[Row]:
    """Yield rank correlation and error on the jobs that were contended in either world."""
    both = [name for name in live if name in simulated]
    some = [name for name in both if max(live[name], simulated[name]) * SECOND >= CONTENDED]
    measure = "rank correlation of waits, contended jobs"
    told = f"{len(some)} of {len(both)} jobs contended; {note}"
    yield figure(
        case,
        measure,
        _ranks(some, live, simulated),
        "",
        contender=contender,
        n=len(some),
        target=target,
        at_least=True,
        note=told,
    )
    for name, null in nulls.items():
        known = [job for job in some if job in null]
        yield figure(case, measure, _ranks(known, live, null), "", contender=f"{name} as null", n=len(known))
    if some:
        told = f"median wait {_middle(live, some):.1f} s live, {_middle(simulated, some):.1f} s simulated"
        error = _error(some, live, simulated)
        yield figure(case, "median absolute error", error, "s", contender=contender, n=len(some), note=told)
        for name, null in nulls.items():
            known = [job for job in some if job in null]
            error = _error(known, live, null)
            yield figure(case, "median absolute error", error, "s", contender=f"{name} as null", n=len(known))
    yield figure(case, "jobs that ended", len(live), "", contender=contender, n=len(live))


def _middle(found: Mapping[str, float], names: Sequence[str]) -> float:
    return median([found[name] for name in names])


def _error(names: Sequence[str], one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return median([abs(one[name] - other[name]) for name in names])


def _ranks(names: Sequence[str], one: Mapping[str, float], other: Mapping[str, float]) -> float | None:
    if len(names) < 3:
        return None
    found = spearmanr([one[name] for name in names], [other[name] for name in names])
    return float(found.statistic)
