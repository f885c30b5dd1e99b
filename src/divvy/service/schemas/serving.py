"""What `divvy serve --publish` shows on the page."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from divvy.service.schemas.shape import Shape


class ServedModel(Shape):
    """A model: how its queries ended since the router began, and the last minute."""

    model: str = Field(max_length=400)
    rule: str = Field(max_length=400)
    slo_ms: float = Field(ge=0, description="Objective of queries that name none.")
    waiting: int = Field(ge=0)
    met: int = Field(ge=0, description="Answered within their objective.")
    late: int = Field(ge=0, description="Answered after it.")
    refused: int = Field(ge=0)
    lost: int = Field(ge=0, description="Answered with an error of a slice, or waited too long.")
    cancelled: int = Field(ge=0, description="Their client went.")
    retried: int = Field(ge=0, description="Sent to another slice; they are counted above too.")
    recent_seconds: float = Field(ge=0, description="Of `rate_qps` and `attainment`.")
    rate_qps: float | None = Field(description="Answered; null: nothing to compare with yet.")
    attainment: float | None = Field(
        ge=0, le=1, description="met over met, late, refused and lost, in `recent_seconds`; null: no query."
    )


class ServedBackend(Shape):
    """A slice behind a router."""

    name: str = Field(max_length=400)
    url: str = Field(max_length=1000)
    model: str = Field(max_length=400)
    gpcs: int = Field(ge=0, description="Compute slices.")
    state: str = Field(description="up, down, held or draining.", max_length=40)
    in_flight: int = Field(ge=0)
    queued: int = Field(ge=0, description="Given to this slice already.")
    wait_ms: float = Field(description="Predicted until what it has is done (T_wait).")
    correction: float = Field(description="How many times the profile's time runs really take (drift).")
    served: int = Field(ge=0)
    items: int = Field(ge=0)
    failed: int = Field(ge=0)
    busy_seconds: float = Field(ge=0)
    rate_qps: float | None
    busy: float | None = Field(ge=0, le=1, description="Part of the last minute that it worked.")


class ServeShown(Shape):
    """A router as it shows itself."""

    schema_: Literal["divvy.serve.shown/1"] = Field(alias="schema")
    address: str = Field(max_length=400)
    state: Literal["serving", "ended"]
    started_at: float = Field(description="Unix seconds.")
    every_seconds: float = Field(gt=0, description="Pause between two documents.")
    models: list[ServedModel] = Field(max_length=512)
    backends: list[ServedBackend] = Field(max_length=512)
    left_out: int = Field(ge=0, description="More back ends than are listed.")
