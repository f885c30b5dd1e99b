"""Examples for the OpenAPI document: a laboratory with two accounts and one node of eight devices.

Every one is a valid instance of its shape; a test holds them to it.
"""

from __future__ import annotations

from typing import Any, Final

from divvy.service.examples_insight import INSIGHT

_AS_OF: Final[dict[str, Any]] = {"as_of": 1_767_225_600.0, "age_seconds": 0.184}

_VISION: Final[dict[str, Any]] = {
    "path": "lab.vision",
    "parent": "lab",
    "leaf": True,
    "share": 60.0,
    "effective_share": 0.6,
    "owners": ["ada"],
    "rank": 1,
    "balance": 1.18,
    "floor": 3.36,
    "held": 6,
    "unallocated": 0,
    "waiting": 1,
    "waiting_gpus": 4,
    "entitlement_gpu_hours": 806.4,
    "usage_gpu_hours": 951.6,
}

_REASON: Final = {
    "code": "wait-protected",
    "text": "what could be taken back is still inside its minimum runtime",
}

_JOB: Final[dict[str, Any]] = {
    "id": "j000002k",
    "name": "resnet-sweep",
    "account": "lab.vision",
    "accounts": ["lab.vision"],
    "author": "ada",
    "gpus": 4,
    "model": "",
    "clusters": [],
    "per_node": 0,
    "kind": "batch",
    "allocated": True,
    "min_runtime_seconds": 7200.0,
    "time_limit_seconds": None,
    "resumable": True,
    "restart": False,
    "priority": 0,
    "debug": False,
    "state": "protected",
    "submitted_at": 1_767_224_000.0,
    "queued_at": 1_767_224_000.0,
    "started_at": 1_767_224_012.5,
    "ended_at": None,
    "protected_until_at": 1_767_231_212.5,
    "waiting_seconds": None,
    "running_seconds": 1587.5,
    "placement": [{"node": "node1", "gpus": 4}],
    "attempt": 1,
    "preemptions": 0,
    "exit_code": None,
    "cause": None,
    "note": "",
    "argv": ["python", "train.py", "--resume"],
    "cwd": "/home/ada/resnet",
    "env": {"WANDB_MODE": "offline"},
}

_HIDDEN: Final = {
    **_JOB,
    "id": "j000002m",
    "author": "bob",
    "name": "",
    "argv": None,
    "cwd": None,
    "env": None,
}

_CHANGES: Final = [{"path": "accounts.lab.vision.share", "from": 50, "to": 60}]

_START: Final[dict[str, Any]] = {
    "kind": "start",
    "job": "j000002k",
    "account": "lab.vision",
    "gpus": 4,
    "reason": {"code": "started-free", "text": "started on free devices"},
    "placement": [{"node": "node1", "gpus": 4}],
    "protected": True,
    "by": None,
    "victim_balance": None,
    "balance": None,
}

_PASS: Final[dict[str, Any]] = {
    "seq": 418,
    "at": 1_767_224_012.1,
    "version": 901,
    "events": 2,
    "decisions": [_START],
    "slots": [],
}

_TOKEN: Final[dict[str, Any]] = {
    "id": "5f0c2a91d37e",
    "user": "ada",
    "role": "submitter",
    "accounts": ["lab.vision"],
    "label": "laptop",
    "created_at": 1_767_220_000.0,
    "created_by": "root",
    "expires_at": 1_774_996_000.0,
    "last_used_at": None,
}

EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "health": {
        "schema": "divvy.health/1",
        "status": "ok",
        "version": "0.1.0",
        **_AS_OF,
        "scheduler": "running",
        "problem": "",
        "home": None,
    },
    "status": {
        "schema": "divvy.status/1",
        **_AS_OF,
        "version": 902,
        "policy": "budget",
        "totals": {
            "gpus": 1,
            "used": 1,
            "allocated": 1,
            "unallocated": 0,
            "free": 0,
            "queued": 1,
            "running": 1,
        },
        "nodes": [
            {
                "name": "node1",
                "model": "H100-80GB",
                "gpus": 1,
                "free": 0,
                "state": "up",
                "cause": "",
                "maintenance": None,
                "domain": "",
                "cluster": "",
                "devices": [
                    {
                        "index": 0,
                        "job": "j000002k",
                        "account": "lab.vision",
                        "state": "protected",
                        "utilisation": None,
                        "utilisation_reason": "no monitor reports the utilisation of this node",
                    }
                ],
            }
        ],
        "accounts": [_VISION],
    },
    "queue": {
        "schema": "divvy.queue/1",
        **_AS_OF,
        "jobs": [
            {
                "position": 1,
                "id": "j000002n",
                "name": "eval",
                "account": "lab.vision",
                "author": "ada",
                "gpus": 4,
                "min_runtime_seconds": 900.0,
                "state": "queued",
                "waiting_seconds": 42.0,
                "reason": _REASON,
                "ahead": [],
                "ahead_count": 0,
            }
        ],
        "total": 1,
    },
    "jobs": {"schema": "divvy.jobs/1", **_AS_OF, "jobs": [_HIDDEN], "next": "84"},
    "job": {"schema": "divvy.job/1", **_AS_OF, **_JOB},
    "cancel": {"schema": "divvy.cancel/1", "job": "j000002k", "state": "protected"},
    "explain": {
        "schema": "divvy.explain/1",
        **_AS_OF,
        "job": "j000002n",
        "state": "queued",
        "headline": _REASON,
        "reasons": [_REASON],
        "account": _VISION,
        "ahead": [
            {
                "id": "j000002k",
                "account": "lab.vision",
                "gpus": 4,
                "why": "holds devices, protected for another 1h 33m",
            }
        ],
        "ahead_count": 0,
        "numbers": {"position": 1, "needed": 4, "free": 2, "reclaimable": 0, "protected": 4, "balance": 1.18},
        "start": {
            "p50_at": 1_767_229_200.0,
            "p90_at": 1_767_231_180.0,
            "futures": 16,
            "started_in": 16,
            "computed_at": 1_767_225_600.0,
        },
        "help": ["a job of at most 2 devices could start now"],
        "history": [{"at": 1_767_225_558.0, "event": "submitted", "text": "submitted"}],
    },
    "budget": {
        "schema": "divvy.budget/1",
        **_AS_OF,
        "version": 3,
        "document": {
            "policy": {"lookback": "7d", "floor": 0.7},
            "accounts": {"lab": {"share": 100, "vision": {"share": 60, "owners": ["ada"]}}},
        },
        "accounts": [_VISION],
    },
    "budget_history": {
        "schema": "divvy.budget.history/1",
        **_AS_OF,
        "versions": [
            {
                "version": 3,
                "at": 1_767_200_000.0,
                "author": "root",
                "reason": "the new grant",
                "changes": _CHANGES,
            }
        ],
    },
    "budget_change": {
        "schema": "divvy.budget.change/1",
        "version": 3,
        "pending": False,
        "changes": _CHANGES,
    },
    "statement": {
        "schema": "divvy.statement/1",
        **_AS_OF,
        "from_at": 1_766_620_800.0,
        "to_at": 1_767_225_600.0,
        "account": "lab.vision",
        "totals": {
            "capacity_gpu_hours": 1344.0,
            "demand_gpu_hours": 1020.5,
            "owed_gpu_hours": 790.0,
            "delivered_gpu_hours": 951.6,
            "unallocated_gpu_hours": 12.0,
            "protected_gpu_hours": 588.0,
            "lost_gpu_hours": 0.0,
            "carried_gpu_hours": -161.6,
            "delivered_over_owed": 1.0,
            "delivered_over_owed_hourly": 0.981,
            "charged": 3_388_095_840_000,
            "adjustments": 0,
            "adjustments_gpu_hours": 0.0,
        },
        "notes": [],
        "sources": None,
        "rows": [
            {
                "account": "lab.vision",
                "leaf": True,
                "share": 0.6,
                "capacity_gpu_hours": 1344.0,
                "demand_gpu_hours": 1020.5,
                "owed_gpu_hours": 790.0,
                "owed_as_one_gpu_hours": 790.0,
                "delivered_gpu_hours": 951.6,
                "delivered_over_owed": 1.0,
                "delivered_over_owed_hourly": 0.981,
                "carried_gpu_hours": -161.6,
                "unallocated_gpu_hours": 12.0,
                "protected_gpu_hours": 588.0,
                "lost_gpu_hours": 0.0,
                "declared_gpu_hours": 610.0,
                "declared_used_gpu_hours": 588.0,
                "charged": 3_388_095_840_000,
                "charged_gpu_hours": 951.6,
                "adjustments": 0,
                "adjustments_gpu_hours": 0.0,
                "entries": [],
                "running": [],
                "hours": None,
            }
        ],
    },
    "drain": {
        "schema": "divvy.drain/1",
        "node": "node1",
        "state": "draining",
        "reason": "fan replaced",
        "from_at": None,
        "until_at": None,
    },
    "slices": {
        "schema": "divvy.slices/1",
        "id": "r5f0c2a91d37e-1",
        "account": "lab.vision",
        "charge": 1_340_000,
        "created": True,
        "pending": False,
    },
    "decisions": {"schema": "divvy.decisions/1", **_AS_OF, "passes": [_PASS], "next": 418},
    "decision": {
        "schema": "divvy.decision/1",
        **_AS_OF,
        **_PASS,
        "events": [{"event": "started", "at": 1_767_224_012.5, "job": "j000002k"}],
        "waits": 0,
    },
    "tokens": {"schema": "divvy.tokens/1", **_AS_OF, "tokens": [_TOKEN]},
    "token": {"schema": "divvy.token/1", **_TOKEN, "token": "divvy_5f0c2a91d37e_SHOWN-THIS-ONCE"},
    "pair": {
        "schema": "divvy.pair/1",
        "id": "8c1f0e5d2b7a4c90",
        "topology": "rails",
        "pair": {"prefill": "h0", "decode": "h2"},
        "route": [
            {"kind": "rdma-affine", "via": ["h0/e0", "rail0", "h2/e0"], "share": 0.8, "gb_per_s": 0.05},
            {"kind": "rdma-affine", "via": ["h0/e1", "rail1", "h2/e1"], "share": 0.2, "gb_per_s": 0.0125},
        ],
        "predicted_seconds": 0.067,
        "sent_bytes": 4_194_304,
        "cached_blocks": 8,
        "deadline_seconds": 0.2,
        "deadline_met": True,
        "explanation": ["h0 to h2 ends first of 2 pairs: 67 ms predicted"],
        "others": [
            {
                "prefill": "h0",
                "decode": "h3",
                "predicted_seconds": 0.134,
                "sent_bytes": 8_388_608,
                "cached_blocks": 0,
                "why": "67 ms later: 4,194,304 bytes more to send",
            }
        ],
        "moving": 0,
        "settings": {
            "nixl_ucx": {
                "prefill": {
                    "UCX_NET_DEVICES": "e0",
                    "UCX_MAX_RNDV_RAILS": "1",
                    "UCX_MAX_RMA_RAILS": "1",
                },
                "decode": {
                    "UCX_NET_DEVICES": "e0",
                    "UCX_MAX_RNDV_RAILS": "1",
                    "UCX_MAX_RMA_RAILS": "1",
                },
            },
            "mooncake": {
                "prefill": {"nic_priority_matrix": {"cpu:0": [["e0", "e1"], []]}},
                "decode": {"nic_priority_matrix": {"cpu:0": [["e0", "e1"], []]}},
            },
            "dynamo": [
                {"node": "h0", "label": "divvy.dev/transfer-domain=rails"},
                {"node": "h2", "label": "divvy.dev/transfer-domain=rails"},
            ],
        },
    },
    "pair_over": {"schema": "divvy.pair.over/1", "id": "8c1f0e5d2b7a4c90"},
    "token_revoked": {"schema": "divvy.token.revoked/1", "id": "5f0c2a91d37e"},
    **INSIGHT,
}
