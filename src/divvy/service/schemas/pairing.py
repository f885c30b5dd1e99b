"""Pairs of a prefill and a decode place, and labs of rails."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from divvy.service.schemas.shape import Shape


class PairPlaces(Shape):
    """The two places."""

    prefill: str
    decode: str


class PairRoute(Shape):
    """A route and its share of the bytes."""

    kind: str
    via: list[str] = Field(description="What it passes between the two places.")
    share: float
    gb_per_s: float = Field(description="Rate that it reaches alone, 1e9 bytes per second.")


class PairOther(Shape):
    """A pair that was not taken."""

    prefill: str
    decode: str
    predicted_seconds: float | None = Field(description="Null where there is no route.")
    sent_bytes: int
    cached_blocks: int
    why: str


class PairSettings(Shape):
    """What to set in today's stacks so that they take this route."""

    nixl_ucx: dict[str, dict[str, str]] = Field(description="Environment of the process on each side.")
    mooncake: dict[str, Any] = Field(description="nic_priority_matrix of each side.")
    dynamo: list[dict[str, str]] = Field(description="Label of each node.")


class Pair(Shape):
    """`POST /v1/pair` and `divvy pair`."""

    schema_: Literal["divvy.pair/1"] = Field(alias="schema")
    id: str = Field(description="Names the transfer while it is counted as on the way.")
    topology: str
    pair: PairPlaces
    route: list[PairRoute] = Field(description="Empty where nothing has to be sent.")
    predicted_seconds: float
    sent_bytes: int
    cached_blocks: int
    deadline_seconds: float | None
    deadline_met: bool | None = Field(description="Null without a deadline.")
    explanation: list[str]
    others: list[PairOther] = Field(description="The other pairs, the best first, at most 32.")
    moving: int = Field(description="Transfers that were counted as on the way.")
    settings: PairSettings


class PairOver(Shape):
    """`DELETE /v1/pair/{id}`."""

    schema_: Literal["divvy.pair.over/1"] = Field(alias="schema")
    id: str


class LabRail(Shape):
    """A rail of a host."""

    rail: str
    device: str
    address: str
    bits_per_second: int
    up: bool


class LabHost(Shape):
    """A host of a lab."""

    host: str
    namespace: str
    enter: list[str] = Field(description="Words to put before a command that is to run there.")
    rails: list[LabRail]


class LabRails(Shape):
    """`divvy lab rails`."""

    schema_: Literal["divvy.lab.rails/1"] = Field(alias="schema")
    name: str
    mtu: int
    switch: str
    hosts: list[LabHost]


class LabRemoved(Shape):
    """`divvy lab rails down`."""

    schema_: Literal["divvy.lab.removed/1"] = Field(alias="schema")
    namespaces: list[str]
    processes: list[int] = Field(description="What still ran there, without a network now.")


PAIRING: tuple[type[Shape], ...] = (Pair, PairOver, LabRails, LabRemoved)
