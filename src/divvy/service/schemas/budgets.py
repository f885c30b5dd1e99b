"""Answers about budgets and what was delivered."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from divvy.service.schemas.shape import AccountView, Aged, Shape


class BudgetView(Aged):
    """The budget in force."""

    schema_: Literal["divvy.budget/1"] = Field("divvy.budget/1", alias="schema")
    version: int
    document: dict[str, Any]
    accounts: list[AccountView]


class BudgetChange(Shape):
    """One value that a version changed; null where it was not there."""

    path: str
    from_: Any = Field(alias="from")
    to: Any


class BudgetVersion(Shape):
    """One version of the budget."""

    version: int
    at: float
    author: str
    reason: str
    changes: list[BudgetChange]


class BudgetHistory(Aged):
    """The versions of the budget, newest first."""

    schema_: Literal["divvy.budget.history/1"] = Field("divvy.budget.history/1", alias="schema")
    versions: list[BudgetVersion]


class BudgetAccepted(Shape):
    """A budget change was recorded."""

    schema_: Literal["divvy.budget.change/1"] = Field("divvy.budget.change/1", alias="schema")
    version: int = Field(description="The version that the change makes.")
    pending: bool = Field(description="Stored, but the scheduler has not answered yet (status 202).")
    changes: list[BudgetChange]


class SlicesCharged(Shape):
    """What slices worked for an account was recorded."""

    schema_: Literal["divvy.slices/1"] = Field("divvy.slices/1", alias="schema")
    id: str
    account: str
    charge: int = Field(description="Device weight x milliseconds.")
    created: bool = Field(description="False where the same batch had come before; it is charged once.")
    pending: bool = Field(description="Stored, but the scheduler has not answered yet.")


class LedgerMarks(Shape):
    """The ledger entries that touch an hour; ``ids`` as ranges (``3-7,9``) only with the sources."""

    first: int | None
    last: int | None
    count: int
    ids: str | None


class StatementHour(Shape):
    """One hour of one account, in GPU-hours."""

    at: float
    share: float = Field(description="Part of the whole fleet in this hour, 0 to 1.")
    capacity: float
    demand: float
    owed: float
    delivered: float
    unallocated: float
    protected: float
    lost: float
    carried: float = Field(description="Owed and not delivered since the begin of the period.")
    adjustments: float
    ledger: LedgerMarks


class AdjustmentView(Shape):
    """Charge added by hand or by a rule, with its cause."""

    at: float
    charge: int
    gpu_hours: float
    cause: str
    id: int | None = Field(description="Its ledger entry.")


class StatementRow(Shape):
    """One account over the period. GPU-hours are those of devices, unweighted; charges are weighted."""

    account: str
    leaf: bool
    share: float = Field(description="Part of the whole fleet, 0 to 1, averaged over the period.")
    capacity_gpu_hours: float
    demand_gpu_hours: float
    owed_gpu_hours: float = Field(
        description="min(share x capacity, demand), summed hour by hour; of an inner account the sum of its "
        "children."
    )
    owed_as_one_gpu_hours: float = Field(
        description="By the same rule with its own share and all its demand: what one child leaves unused "
        "its siblings may have."
    )
    delivered_gpu_hours: float
    delivered_over_owed: float | None = Field(description="Capped per period; null when nothing was owed.")
    delivered_over_owed_hourly: float | None = Field(description="Delivered capped at owed in every hour.")
    carried_gpu_hours: float = Field(description="Owed and not delivered in the period; negative: got more.")
    unallocated_gpu_hours: float
    protected_gpu_hours: float
    lost_gpu_hours: float
    declared_gpu_hours: float = Field(description="Declared minimum runtime of the runs that ended.")
    declared_used_gpu_hours: float = Field(description="How much of it those runs used.")
    charged: int = Field(description="Occupancy charge, device weight x milliseconds, exact.")
    charged_gpu_hours: float
    adjustments: int
    adjustments_gpu_hours: float
    entries: list[AdjustmentView]
    running: list[str] = Field(description="Runs that are not over, JOB/ATTEMPT: no ledger entry yet.")
    hours: list[StatementHour] | None = None


class StatementTotals(Shape):
    """Sums over the topmost accounts of a statement."""

    capacity_gpu_hours: float
    demand_gpu_hours: float
    owed_gpu_hours: float
    delivered_gpu_hours: float
    unallocated_gpu_hours: float
    protected_gpu_hours: float
    lost_gpu_hours: float
    carried_gpu_hours: float
    delivered_over_owed: float | None
    delivered_over_owed_hourly: float | None
    charged: int
    adjustments: int
    adjustments_gpu_hours: float


class SharesSince(Shape):
    """Shares of the whole fleet, by account, since an instant."""

    at: float
    shares: dict[str, float]


class CapacitySince(Shape):
    """Healthy devices since an instant, and how many of each model."""

    at: float
    gpus: int
    models: dict[str, int]


class DemandView(Shape):
    """An allocated job that was queued or running."""

    account: str
    job: str
    from_at: float
    to_at: float
    gpus: int
    model: str


class RunView(Shape):
    """A run: a line of the ledger, or, without an id, one that is not over."""

    id: int | None
    account: str
    job: str
    attempt: int
    from_at: float
    to_at: float
    gpus: int
    weight: int
    charge: int
    allocated: bool
    declared_seconds: float
    protected_seconds: float
    restore_seconds: float
    lost_seconds: float


class StatementSources(Shape):
    """What a statement was made from: enough to recompute it."""

    shares: list[SharesSince]
    capacity: list[CapacitySince]
    demand: list[DemandView]
    runs: list[RunView]


class Statement(Aged):
    """Owed and delivered per account."""

    schema_: Literal["divvy.statement/1"] = Field("divvy.statement/1", alias="schema")
    from_at: float
    to_at: float
    account: str = Field(description="The subtree that was asked for; empty: all.")
    totals: StatementTotals
    rows: list[StatementRow]
    notes: list[str] = Field(description="What the figures cannot say.")
    sources: StatementSources | None = None
