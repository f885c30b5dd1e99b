"""Planners by name: Divvy's own and the rules of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from divvy.errors import InputError
from divvy.planners.transfers import divvy, online
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.peers import (
    dynamo_label,
    fabric_lib,
    label_rank,
    mooncake,
    nixl_first,
    tent,
    topkv,
    uccl,
    ucx,
    uniform_rdma,
)
from divvy.planners.transfers.plan import RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads

Planner = Callable[[Roads, Finder, Sequence[Transfer], int], RoutePlan]

PLANNERS: Final[dict[str, Planner]] = {
    "divvy": divvy.plan,
    "divvy-online": online.plan,
    "mooncake": mooncake.plan,
    "tent": tent.plan,
    "ucx": ucx.plan,
    "nixl-first": nixl_first.plan,
    "uccl": uccl.plan,
    "fabric-lib": fabric_lib.plan,
    "dynamo-label": dynamo_label.plan,
    "label-rank": label_rank.plan,
    "topkv": topkv.plan,
    "uniform-rdma": uniform_rdma.plan,
}
PEERS: Final = tuple(name for name in PLANNERS if not name.startswith("divvy"))


def choose(text: str) -> list[str]:
    """Return the names that ``all`` or a comma list means.

    Raises:
        InputError: If a name is unknown; the fault lists the valid ones.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["all"]:
        return list(PLANNERS)
    for name in names:
        if name not in PLANNERS:
            raise InputError.one(
                "planner-unknown", f"no planner {name!r}", path="--planners", allowed=", ".join(PLANNERS)
            )
    if not names:
        raise InputError.one(
            "planner-unknown", "no planner ''", path="--planners", allowed=", ".join(PLANNERS)
        )
    return names
