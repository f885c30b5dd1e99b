"""What a statement is made from: jobs that asked, runs, charges, the fleet and the trees over time."""

from __future__ import annotations

from typing import NamedTuple

from divvy.fleet.account import AccountTree


class Demand(NamedTuple):
    """An allocated job that was queued or running from ``start`` to ``end`` (ms); no model is any model."""

    account: str
    start: int
    end: int
    gpus: int
    job: str = ""
    model: str = ""


class Occupancy(NamedTuple):
    """A run, or the part of it so far.

    Attributes:
        account: Leaf account.
        start: Begin, ms.
        end: End, ms.
        gpus: Devices.
        weight: Charge per ms of the whole gang.
        allocated: Whether it is charged.
        lost: Time at its end whose work is known to be lost, ms.
        declared: Declared minimum runtime, ms.
        protected: Time from its begin that is or was protected, ms.
        restore: Time at its begin spent restoring, ms.
        entry: Number of its ledger entry; 0 where the run is not over.
        job: Id.
        attempt: Run of the job.
    """

    account: str
    start: int
    end: int
    gpus: int
    weight: int
    allocated: bool
    lost: int
    declared: int
    protected: int = 0
    restore: int = 0
    entry: int = 0
    job: str = ""
    attempt: int = 0


class Stint(NamedTuple):
    """A job as far as a statement is concerned; times are ms, None where there is none yet."""

    job: str
    account: str
    gpus: int
    min_runtime: int
    resumable: bool
    refused: bool
    submitted: int
    started: int | None
    stopped: int | None
    attempt: int
    rate: int
    stop_cause: int | None
    protected_until: int = 0
    model: str = ""


class Adjustment(NamedTuple):
    """Charge added at an instant, with its cause."""

    account: str
    at: int
    charge: int
    cause: str
    entry: int = 0


class Capacity(NamedTuple):
    """Healthy devices since an instant; those of each model where the fleet has several."""

    at: int
    gpus: int
    models: tuple[tuple[str, int], ...] = ()


class Epoch(NamedTuple):
    """The account tree that holds since an instant."""

    at: int
    tree: AccountTree
