"""Examples for the OpenAPI document of what is shown, what would be, what others claim, and who asks."""

from __future__ import annotations

from typing import Any, Final

_AS_OF: Final[dict[str, Any]] = {"as_of": 1_767_225_600.0, "age_seconds": 0.0}

_SHOWN: Final[dict[str, Any]] = {
    "name": "training-node",
    "kind": "divvy.topo/1",
    "view": "transfers",
    "title": "node1.txt",
    "example": False,
    "by": "root",
    "at": 1_767_200_000.0,
    "command": "divvy topo show node1.txt --json",
}

_TOPO: Final[dict[str, Any]] = {
    "schema": "divvy.topo/1",
    "name": "node1.txt",
    "sources": ["node1.txt"],
    "vertices": [{"id": "GPU0", "kind": "gpu"}, {"id": "GPU1", "kind": "gpu"}],
    "links": [],
    "pairs": [{"a": "GPU0", "b": "GPU1", "label": "NV18"}],
    "peering": {"allowed": True, "socket_gb_per_s": 30.0, "cross_gb_per_s": 10.0},
    "warnings": [],
}

_ROW: Final[dict[str, Any]] = {
    "case": "KV transfer: uniform RDMA over the plan",
    "contender": "TopKV (claim)",
    "measure": "speed-up",
    "value": 18.0,
    "unit": "ratio",
    "interval": [3.0, 18.0],
    "n": 1,
    "target": None,
    "met": None,
    "note": "by analysis",
}

INSIGHT: Final[dict[str, dict[str, Any]]] = {
    "shown": {"schema": "divvy.shown/1", **_AS_OF, "documents": [_SHOWN]},
    "shown_document": {"schema": "divvy.shown.document/1", **_AS_OF, **_SHOWN, "document": _TOPO},
    "shown_kept": {"schema": "divvy.shown.kept/1", **_SHOWN},
    "shown_removed": {"schema": "divvy.shown.removed/1", "name": "training-node"},
    "me": {
        "schema": "divvy.me/1",
        "user": "ada",
        "role": "owner",
        "accounts": ["lab.vision"],
        "may_split": ["lab.vision"],
        "may_drain": False,
        "via": "token",
    },
    "policies": {
        "schema": "divvy.policies/1",
        "policies": [{"name": "fairshare", "source": "https://slurm.schedmd.com/fair_tree.html"}],
    },
    "whatif": {
        "schema": "divvy.whatif/1",
        **_AS_OF,
        "asked": {"shares": {"lab.vision": 50.0, "lab.language": 50.0}, "policy": "budget", "hours": 24.0},
        "basis": {
            "budget_version": 3,
            "policy": "budget",
            "from_at": 1_767_139_200.0,
            "until_at": 1_767_225_600.0,
            "jobs": 412,
            "drawn": 9,
            "left_out": 3,
            "gpus": 8,
        },
        "sides": [{"side": "now", "policy": "budget", "occupancy": 0.93}],
        "change": {"by_account": [{"account": "lab.vision", "longer": 40.0, "shorter": 3.0, "same": 200.0}]},
    },
    "claims": {
        "schema": "divvy.claims/1",
        "claims": [
            {
                "part": "transfers",
                "claim": "KV caches move 3 to 18 times faster than by uniform RDMA",
                "source": "TopKV, arXiv 2607.28633",
                "published": [_ROW],
                "measured": [],
                "conditions": "computed in a fluid simulator",
                "correction": "18 divides a two-way figure by a one-way figure",
                "machine": None,
                "command": "divvy bench routes --json",
            }
        ],
    },
}
