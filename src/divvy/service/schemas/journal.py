"""Answers about nodes, decisions, tokens, the stream."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from divvy.service.schemas.shape import Aged, PlaceView, ReasonView, Shape


class Drain(Shape):
    """A drain or a fault, or its end, was recorded."""

    schema_: Literal["divvy.drain/1"] = Field("divvy.drain/1", alias="schema")
    node: str
    state: Literal["draining", "down", "up"]
    reason: str
    from_at: float | None = Field(description="When it begins; null: now.")
    until_at: float | None = Field(description="When it ends by itself; null: when somebody says so.")


class DecisionView(Shape):
    """One start or preemption."""

    kind: Literal["start", "preempt"]
    job: str
    account: str
    gpus: int
    reason: ReasonView
    placement: list[PlaceView]
    protected: bool | None
    by: str | None
    victim_balance: float | None
    balance: float | None


class SlotView(Shape):
    """A dated slot of a gang: given (``hold``) on some devices for a time, or given up (``lapse``)."""

    kind: Literal["hold", "lapse"]
    job: str
    placement: list[PlaceView]
    due_at: float | None


class PassView(Shape):
    """One journalled pass."""

    seq: int
    at: float
    version: int
    events: int
    decisions: list[DecisionView]
    slots: list[SlotView]


class Decisions(Aged):
    """A page of journalled passes, newest first."""

    schema_: Literal["divvy.decisions/1"] = Field("divvy.decisions/1", alias="schema")
    passes: list[PassView]
    next: int | None


class Decision(Aged):
    """One journalled pass in full."""

    schema_: Literal["divvy.decision/1"] = Field("divvy.decision/1", alias="schema")
    seq: int
    at: float
    version: int
    events: list[dict[str, Any]]
    decisions: list[DecisionView]
    slots: list[SlotView]
    waits: int


class TokenView(Shape):
    """A token without its secret."""

    id: str
    user: str
    role: Literal["viewer", "submitter", "owner", "admin"]
    accounts: list[str] = Field(description="Subtrees that it may submit to; empty means none.")
    label: str
    created_at: float
    created_by: str
    expires_at: float | None
    last_used_at: float | None


class Tokens(Aged):
    """All tokens."""

    schema_: Literal["divvy.tokens/1"] = Field("divvy.tokens/1", alias="schema")
    tokens: list[TokenView]


class TokenCreated(TokenView):
    """A new token; ``token`` is shown this once and never again."""

    schema_: Literal["divvy.token/1"] = Field("divvy.token/1", alias="schema")
    token: str


class TokenRevoked(Shape):
    """A token was revoked."""

    schema_: Literal["divvy.token.revoked/1"] = Field("divvy.token.revoked/1", alias="schema")
    id: str


class StreamEvent(Shape):
    """Data of one server-sent event."""

    version: int
    at: float
