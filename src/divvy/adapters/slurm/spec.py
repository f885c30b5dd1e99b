"""A Slurm job in the words of the fleet: who pays, what it asks for, its contract, its devices' places."""

from __future__ import annotations

from typing import Final, NamedTuple

import structlog

from divvy.adapters.slurm.contract import Contract, read_contract
from divvy.adapters.slurm.nodes import FleetNames
from divvy.adapters.slurm.record import SlurmJob
from divvy.adapters.slurm.settings import SlurmSettings
from divvy.adapters.slurm.text import even
from divvy.errors import InputError
from divvy.fleet.account import AccountTree
from divvy.fleet.budget import Policy
from divvy.fleet.claims import claimant_in
from divvy.fleet.job import JobKind, JobSpec

_NAME_LIMIT: Final = 200

_log = structlog.get_logger("slurm")


class Claims:
    """Which account pays for which of Slurm's accounts.

    Args:
        tree: The accounts, with their names in Slurm.
        unfunded: Path of the account of names that nobody claims.
    """

    def __init__(self, tree: AccountTree, unfunded: str) -> None:
        self.tree = tree
        self._paths = {tree.paths[row] for row in tree.leaves}
        self._unfunded = unfunded if unfunded in self._paths else ""
        self._known: dict[str, str] = {}

    def of(self, account: str) -> str:
        """Return the path of the account that pays; empty where there is not even an unfunded one."""
        path = self._known.get(account)
        if path is None:
            path = self._known[account] = self._look_up(account)
        return path

    def _look_up(self, account: str) -> str:
        try:
            path = claimant_in("slurm", account, self.tree)
        except InputError as error:
            path = None
            _log.warning("claimed by several accounts", slurm_account=account, error=str(error))
        if path in self._paths:
            return str(path)
        _log.warning("no account claims it", slurm_account=account, pays=self._unfunded or "nobody")
        return self._unfunded

    def known(self, path: str) -> bool:
        """Return whether a path is an account that can pay."""
        return path in self._paths


class Read(NamedTuple):
    """A job that was understood: its specification, its contract."""

    spec: JobSpec
    contract: Contract


def read_job(
    job: SlurmJob, name: str, settings: SlurmSettings, claims: Claims, names: FleetNames, policy: Policy
) -> Read | None:
    """Return a job as the planners see it, None where nobody can be charged for it.

    Args:
        job: As Slurm has it.
        name: Id of the job here.
        settings: How this Slurm is treated.
        claims: Who pays.
        names: Nodes and models.
        policy: Its cap on minimum runtimes holds; a longer one is cut to it, as is one above the time limit.
    """
    contract = read_contract(job.comment, settings.contract_of(job.partition))
    account = contract.account if claims.known(contract.account) else claims.of(job.account)
    if not account:
        return None
    minimum = min(contract.min_runtime or 0, policy.max_min_runtime)
    if job.limit:
        minimum = min(minimum, job.limit)
    uneven = job.node_count <= 1 or job.gpus.total % job.node_count != 0
    spec = JobSpec(
        id=name,
        account=account,
        author=job.user,
        gpus=job.gpus.total,
        min_runtime=minimum,
        resumable=contract.resumable and job.batch,
        restart=contract.restart and job.requeue and job.batch,
        priority=contract.priority,
        kind=JobKind.INTERACTIVE if contract.interactive or not job.batch else JobKind.BATCH,
        model=names.model_of(job),
        per_node=0 if uneven else job.gpus.total // job.node_count,
        time_limit=job.limit,
        name="".join(letter if letter.isprintable() else "?" for letter in job.name)[:_NAME_LIMIT],
    )
    return Read(spec, contract)


def place(job: SlurmJob, names: FleetNames) -> tuple[tuple[str, int], ...]:
    """Return where a run is, as (node name here, devices) pairs; empty where that is not known.

    Args:
        job: As Slurm has it.
        names: Nodes.
    """
    pairs = job.spread or even(job)
    if not pairs and job.nodes:
        each, rest = divmod(job.gpus.total, len(job.nodes))
        pairs = tuple((name, each + (number < rest)) for number, name in enumerate(job.nodes))
    found: list[tuple[str, int]] = []
    for name, gpus in pairs:
        found += names.split(name, gpus, job.gpus.models)
    return tuple((name, gpus) for name, gpus in found if gpus)
