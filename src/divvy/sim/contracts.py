"""Contracts for traces that record none: what users would have declared, drawn from a seed.

The scheduler sees the declaration and the user's limit; the true runtime and the phase of the checkpoints
stay with the engine. Every property is drawn from a stream of its own, so that two rules differ in nothing
but what they change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from divvy.fleet.budget import Policy
from divvy.fleet.job import JobSpec
from divvy.planners.jobs.admission import DebugAllowance
from divvy.sim.traces.trace import TraceJob
from divvy.units import MINUTE, SECOND


class Declare(StrEnum):
    """What users declare as their minimum runtime."""

    HONEST = "honest"
    ALL_CAP = "all-cap"
    ZERO = "zero"


@dataclass(frozen=True, slots=True)
class ContractRule:
    """Parameters of the generator; the defaults are the honest users of the published comparison.

    Attributes:
        declare: Honest guess, always the cap, or always 0.
        spread: Sigma of the lognormal factor between the true runtime and the honest guess (its median
            is exact).
        shortest: Least minimum runtime that an honest user declares, ms; the cap is the policy's.
        zero_share: Part of the honest jobs that declare 0.
        not_resumable: Part of the jobs that lose everything when preempted.
        restart: Whether those start again from zero instead of ending as preempted.
        limit_mu: Mu of the lognormal factor between the true runtime and the user's limit.
        limit_sigma: Its sigma.
        authors: Authors per account.
        zipf: Exponent of the Zipf law by which an account's jobs fall to its authors.
    """

    declare: Declare = Declare.HONEST
    spread: float = 1.0
    shortest: int = 15 * MINUTE
    zero_share: float = 0.18
    not_resumable: float = 0.10
    restart: bool = False
    limit_mu: float = 0.5
    limit_sigma: float = 0.7
    authors: int = 20
    zipf: float = 1.0


@dataclass(frozen=True, slots=True)
class Contracts:
    """A rule for everybody and exceptions for accounts (by the trace's own names)."""

    default: ContractRule = ContractRule()
    accounts: Mapping[str, ContractRule] = field(default_factory=dict)

    def rule(self, account: str) -> ContractRule:
        """Return the rule of an account."""
        return self.accounts.get(account, self.default)


@dataclass(slots=True)
class Workload:
    """What one replay is fed with, in columns; row n is the n-th submission.

    Attributes:
        spec: The jobs as the scheduler sees them.
        submit: Submissions, ms.
        debug: Admission's answer to the debug rule.
        runtime: True runtimes, ms; only the engine reads them.
        phase: Work until a job's first checkpoint, ms; only the engine reads it.
        index: Row per job id.
    """

    spec: list[JobSpec]
    submit: list[int]
    debug: list[bool]
    runtime: list[int]
    phase: list[int]
    index: dict[str, int]

    def __len__(self) -> int:
        """Return the number of jobs."""
        return len(self.spec)


def draw(
    jobs: Sequence[TraceJob],
    accounts: Mapping[str, str],
    contracts: Contracts,
    policy: Policy,
    checkpoint: int,
    seed: int,
) -> Workload:
    """Return the workload that a trace becomes under drawn contracts; what the trace says is kept.

    Args:
        jobs: In order of submission.
        accounts: Leaf account in the budget per account of the trace.
        contracts: The generator's rules.
        policy: Gives the cap on minimum runtimes and the debug rule.
        checkpoint: Work between two checkpoints, ms; 0 for jobs that never checkpoint.
        seed: Draws everything.
    """
    runtime = np.array([job.runtime for job in jobs], dtype=np.float64)
    rules = [contracts.rule(job.account) for job in jobs]
    declared = _declared(runtime, rules, policy, seed)
    limits = _limits(runtime, rules, seed)
    resumable = _uniform(seed, 3, len(jobs)) >= np.array([rule.not_resumable for rule in rules])
    phase = np.floor(_uniform(seed, 5, len(jobs)) * checkpoint).astype(np.int64) + 1
    authors = _authors(jobs, contracts, seed)
    spec = [
        _contract(
            job,
            tuple(accounts[name] for name in (job.account, *job.or_accounts)),
            authors[n],
            min(int(declared[n]) if job.min_runtime is None else job.min_runtime, policy.max_min_runtime),
            int(limits[n]),
            resumable=bool(resumable[n]),
            restart=rules[n].restart,
        )
        for n, job in enumerate(jobs)
    ]
    submit = [job.submit for job in jobs]
    allowance = DebugAllowance()
    return Workload(
        spec,
        submit,
        [allowance.grant(at, one, policy) for at, one in zip(submit, spec, strict=True)],
        [job.runtime for job in jobs],
        [int(work) for work in phase],
        {one.id: n for n, one in enumerate(spec)},
    )


def _contract(
    job: TraceJob,
    payers: tuple[str, ...],
    author: str,
    minimum: int,
    limit: int,
    *,
    resumable: bool,
    restart: bool,
) -> JobSpec:
    """Return a job as its user would have submitted it; nobody gives a limit below the own minimum."""
    goes_on = resumable if job.resumable is None else job.resumable
    return JobSpec(
        id=job.id,
        account=payers[0],
        author=author if job.author is None else job.author,
        gpus=job.gpus,
        min_runtime=minimum,
        resumable=goes_on,
        restart=job.restart or (restart and not goes_on),
        priority=job.priority,
        kind=job.kind,
        model=job.model,
        per_node=job.per_node,
        time_limit=max(limit, minimum) if job.time_limit is None else job.time_limit,
        name=job.name,
        budgets=payers if len(payers) > 1 else (),
        clusters=job.clusters,
    )


def _stream(seed: int, number: int) -> np.random.Generator:
    """Return the generator of one property, independent of the others."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, number])))


def _uniform(seed: int, number: int, size: int) -> NDArray[np.float64]:
    return _stream(seed, number).random(size)


def _declared(
    runtime: NDArray[np.float64], rules: Sequence[ContractRule], policy: Policy, seed: int
) -> NDArray[np.int64]:
    """Return declared minimum runtimes, ms, in whole seconds."""
    cap = policy.max_min_runtime
    spread = np.array([rule.spread for rule in rules])
    shortest = np.array([min(rule.shortest, cap) for rule in rules])
    guess = runtime * np.exp(spread * _stream(seed, 1).standard_normal(len(rules)))
    declared = np.clip(np.round(guess / SECOND) * SECOND, shortest, cap)
    zero = _uniform(seed, 2, len(rules)) < np.array([rule.zero_share for rule in rules])
    declared[zero] = 0
    declared[np.array([rule.declare is Declare.ALL_CAP for rule in rules], dtype=bool)] = cap
    declared[np.array([rule.declare is Declare.ZERO for rule in rules], dtype=bool)] = 0
    return declared.astype(np.int64)


def _limits(runtime: NDArray[np.float64], rules: Sequence[ContractRule], seed: int) -> NDArray[np.int64]:
    """Return users' limits, ms; never below the true runtime, since what was recorded did run so long."""
    mu = np.array([rule.limit_mu for rule in rules])
    sigma = np.array([rule.limit_sigma for rule in rules])
    factor = np.exp(mu + sigma * _stream(seed, 4).standard_normal(len(rules)))
    return np.ceil(runtime * np.maximum(factor, 1.0)).astype(np.int64)


def _authors(jobs: Sequence[TraceJob], contracts: Contracts, seed: int) -> list[str]:
    """Return an author per job: ranks of a bounded Zipf law, named after the account."""
    chance = _uniform(seed, 6, len(jobs))
    ladders = {
        account: _ladder(contracts.rule(account)) for account in dict.fromkeys(job.account for job in jobs)
    }
    return [
        f"{job.account}-u{int(np.searchsorted(ladders[job.account], chance[n], side='right')) + 1:02d}"
        for n, job in enumerate(jobs)
    ]


def _ladder(rule: ContractRule) -> NDArray[np.float64]:
    """Return the cumulative chances of the authors' ranks, the last one left out."""
    weight = 1.0 / np.arange(1, max(1, rule.authors) + 1) ** rule.zipf
    cumulative: NDArray[np.float64] = np.cumsum(weight / weight.sum())
    return cumulative[:-1]
