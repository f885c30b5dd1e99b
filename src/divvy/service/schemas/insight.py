"""Answers about what is shown, what would be, what others claim, and who asks."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from divvy.service.schemas.shape import Aged, Shape


class ShownView(Shape):
    """A document on the page, without its content."""

    name: str
    kind: str = Field(description="The document's own schema, such as divvy.slices.plan/1.")
    view: Literal["slices", "transfers", "serving", "plan"] = Field(description="The page that shows it.")
    title: str
    example: bool = Field(description="Whether it was made from example inputs: not about this fleet.")
    by: str
    at: float = Field(description="When it was put there; Unix seconds.")
    command: str = Field(description="The command that printed it, as far as it was told.")


class ShownList(Aged):
    """Everything that is shown."""

    schema_: Literal["divvy.shown/1"] = Field("divvy.shown/1", alias="schema")
    documents: list[ShownView]


class Shown(ShownView, Aged):
    """One document."""

    schema_: Literal["divvy.shown.document/1"] = Field("divvy.shown.document/1", alias="schema")
    document: dict[str, Any]


class ShownKept(ShownView):
    """A document was put on the page."""

    schema_: Literal["divvy.shown.kept/1"] = Field("divvy.shown.kept/1", alias="schema")


class ShownRemoved(Shape):
    """A document was taken off the page."""

    schema_: Literal["divvy.shown.removed/1"] = Field("divvy.shown.removed/1", alias="schema")
    name: str


class Me(Shape):
    """Who asks, and what the API would let them do."""

    schema_: Literal["divvy.me/1"] = Field("divvy.me/1", alias="schema")
    user: str
    role: Literal["viewer", "submitter", "owner", "admin"]
    accounts: list[str] | None = Field(description="Subtrees that it may submit to; null: all.")
    may_split: list[str] = Field(description="Accounts among whose children it may divide the share.")
    may_drain: bool
    via: Literal["socket", "token"]


class PolicyView(Shape):
    """One policy."""

    name: str
    source: str = Field(description="Where its rule is documented; empty: Divvy's own.")


class Policies(Shape):
    """The policies."""

    schema_: Literal["divvy.policies/1"] = Field("divvy.policies/1", alias="schema")
    policies: list[PolicyView]


class WhatIfAsked(Shape):
    """The question as it was understood."""

    shares: dict[str, float]
    policy: str
    hours: float


class WhatIfBasis(Shape):
    """What was replayed."""

    budget_version: int
    policy: str
    from_at: float
    until_at: float
    jobs: int
    drawn: int = Field(description="Jobs that are not over: their runtime is drawn from jobs like them.")
    left_out: int = Field(description="Jobs that were ended before they ran.")
    gpus: int


class WhatIf(Aged):
    """The same jobs as things are and as asked."""

    schema_: Literal["divvy.whatif/1"] = Field("divvy.whatif/1", alias="schema")
    asked: WhatIfAsked
    basis: WhatIfBasis
    sides: list[dict[str, Any]] = Field(description="now and other: the figures of divvy.simulate/1.")
    change: dict[str, Any] = Field(description="By account, as in divvy.simulate.whatif/1.")


class ClaimView(Shape):
    """One published claim beside what was measured here."""

    part: Literal["budgets", "slices", "transfers"]
    claim: str
    source: str
    published: list[dict[str, Any]] = Field(description="Rows of divvy.bench/1 that repeat the claim.")
    measured: list[dict[str, Any]] = Field(description="Rows of divvy.bench/1 that are ours.")
    conditions: str
    correction: str
    machine: str | None = Field(description="Where ours were measured; null: not measured.")
    command: str = Field(description="Measures them again.")


class Claims(Shape):
    """All claims."""

    schema_: Literal["divvy.claims/1"] = Field("divvy.claims/1", alias="schema")
    claims: list[ClaimView]


class CheckView(Shape):
    """One look at a machine."""

    name: str
    state: Literal["ok", "warn", "missing", "fail", "unknown"] = Field(
        description="missing: optional and not there; fail: needed, and not there or broken."
    )
    found: str
    needed_for: str
    fix: str = Field(description="What to do; empty where nothing.")


class Doctor(Shape):
    """`divvy doctor`."""

    schema_: Literal["divvy.doctor/1"] = Field("divvy.doctor/1", alias="schema")
    ready: bool = Field(description="Whether nothing that `divvy up` needs is missing.")
    checks: list[CheckView]
