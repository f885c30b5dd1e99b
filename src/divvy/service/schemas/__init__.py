"""What the HTTP API answers: one model per response, the source of the OpenAPI document.

Times are Unix seconds (floats) in fields that end in ``_at`` or are called ``as_of``; durations end in
``_seconds``. Large lists are built as plain dictionaries of these shapes (a test holds them to the models),
because a model object per row would cost more than the row. ``schema`` names the shape and its version:
fields may be added to a version, never renamed, removed or given another meaning.
"""

from __future__ import annotations

from divvy.service.schemas.budgets import (
    AdjustmentView,
    BudgetAccepted,
    BudgetChange,
    BudgetHistory,
    BudgetVersion,
    BudgetView,
    SlicesCharged,
    Statement,
    StatementHour,
    StatementRow,
)
from divvy.service.schemas.fleet import DeviceView, Health, NodeView, Status, Totals
from divvy.service.schemas.insight import (
    Claims,
    Doctor,
    Me,
    Policies,
    Shown,
    ShownKept,
    ShownList,
    ShownRemoved,
    WhatIf,
)
from divvy.service.schemas.jobs import (
    AheadView,
    Cancelled,
    Explanation,
    HistoryView,
    Job,
    Jobs,
    JobView,
    Queue,
    QueuedJob,
)
from divvy.service.schemas.journal import (
    Decision,
    Decisions,
    DecisionView,
    Drain,
    PassView,
    StreamEvent,
    TokenCreated,
    TokenRevoked,
    Tokens,
    TokenView,
)
from divvy.service.schemas.shape import AccountView, Aged, FaultView, PlaceView, Problem, ReasonView, Shape

__all__ = [
    "AccountView",
    "AdjustmentView",
    "Aged",
    "AheadView",
    "BudgetAccepted",
    "BudgetChange",
    "BudgetHistory",
    "BudgetVersion",
    "BudgetView",
    "Cancelled",
    "Claims",
    "Decision",
    "DecisionView",
    "Decisions",
    "DeviceView",
    "Doctor",
    "Drain",
    "Explanation",
    "FaultView",
    "Health",
    "HistoryView",
    "Job",
    "JobView",
    "Jobs",
    "Me",
    "NodeView",
    "PassView",
    "PlaceView",
    "Policies",
    "Problem",
    "Queue",
    "QueuedJob",
    "ReasonView",
    "Shape",
    "Shown",
    "ShownKept",
    "ShownList",
    "ShownRemoved",
    "SlicesCharged",
    "Statement",
    "StatementHour",
    "StatementRow",
    "Status",
    "StreamEvent",
    "TokenCreated",
    "TokenRevoked",
    "TokenView",
    "Tokens",
    "Totals",
    "WhatIf",
]
