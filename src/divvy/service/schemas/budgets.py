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


class StatementHour(Shape):
    """One hour of one account, in GPU-hours."""

    at: float
    capacity: float
    demand: float
    owed: float
    delivered: float
    unallocated: float


class AdjustmentView(Shape):
    """Charge added by hand or by a rule, with its cause."""

    at: float
    charge: int
    gpu_hours: float
    cause: str


class StatementRow(Shape):
    """One account over the period. GPU-hours are those of devices, unweighted; charges are weighted."""

    account: str
    share: float = Field(description="Part of the whole fleet, 0 to 1, averaged over the period.")
    capacity_gpu_hours: float
    demand_gpu_hours: float
    owed_gpu_hours: float = Field(description="min(share x capacity, demand), summed hour by hour.")
    delivered_gpu_hours: float
    delivered_over_owed: float | None = Field(description="Capped per period; null when nothing was owed.")
    delivered_over_owed_hourly: float | None = Field(description="Delivered capped at owed in every hour.")
    unallocated_gpu_hours: float
    lost_gpu_hours: float
    declared_gpu_hours: float = Field(description="Declared minimum runtime of the runs that ended.")
    declared_used_gpu_hours: float = Field(description="How much of it those runs used.")
    charged: int = Field(description="Occupancy charge, device weight x milliseconds, exact.")
    charged_gpu_hours: float
    adjustments: int
    adjustments_gpu_hours: float
    entries: list[AdjustmentView]
    hours: list[StatementHour] | None = None


class Statement(Aged):
    """Owed and delivered per account."""

    schema_: Literal["divvy.statement/1"] = Field("divvy.statement/1", alias="schema")
    from_at: float
    to_at: float
    rows: list[StatementRow]
