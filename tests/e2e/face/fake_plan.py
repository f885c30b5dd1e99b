"""Documents of the pages Serving and Plan: a router with slices in every state, a plan with every kind of change."""

from __future__ import annotations

from typing import Any


def _backend(name: str, gpcs: int, state: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "url": "http://127.0.0.1:9001",
        "model": "chat",
        "gpcs": gpcs,
        "state": state,
        "in_flight": int(state == "up"),
        "queued": 0,
        "wait_ms": 12.5,
        "correction": 1.07,
        "served": 4200,
        "items": 16800,
        "failed": 0,
        "busy_seconds": 1800.5,
        "rate_qps": 61.2,
        "busy": 0.81,
        **more,
    }


ROUTER: dict[str, Any] = {
    "schema": "divvy.serve.shown/1",
    "address": "http://127.0.0.1:8090",
    "state": "serving",
    "started_at": 1.7e9 - 3600,
    "every_seconds": 5.0,
    "models": [
        {
            "model": "chat",
            "rule": "divvy",
            "slo_ms": 20.0,
            "waiting": 3,
            "met": 9500,
            "late": 300,
            "refused": 150,
            "lost": 50,
            "cancelled": 7,
            "retried": 1,
            "recent_seconds": 60.0,
            "rate_qps": 244.8,
            "attainment": 0.962,
        }
    ],
    "backends": [
        _backend("gpu0-3g", 3, "up", queued=2),
        _backend("gpu0-4g", 4, "up"),
        _backend("gpu1-1g", 1, "held", rate_qps=0.0, busy=0.0, wait_ms=0.0),
        _backend("gpu1-2g", 2, "down", rate_qps=None, busy=None, failed=9),
    ],
    "left_out": 0,
}


def _slice(profile: str, start: int, size: int) -> dict[str, Any]:
    return {"profile": profile, "start": start, "size": size}


_CUT = {"lease": "chat-1", "node": "gpu-001", "device": 0}
_AFTER = [_slice("3g.40gb", 0, 4), _slice("3g.40gb", 4, 4)]

ONE_PLAN: dict[str, Any] = {
    "schema": "divvy.plan/1",
    "version": 42,
    "at": 1.7e9,
    "source": "fleet.toml",
    "changes": 6,
    "jobs": {
        "start": [
            {
                "job": "j00013",
                "account": "lab.language",
                "gpus": 2,
                "placement": [["gpu-001", 2]],
                "protected": True,
                "reason": "started-reclaim",
                "text": "started on devices that were taken back",
            }
        ],
        "preempt": [
            {
                "job": "j00003",
                "account": "lab.vision",
                "gpus": 2,
                "by": "j00013",
                "victim_balance": 1.4,
                "balance": 0.6,
                "reason": "preempt-reclaim",
                "text": "an under-served account claims its share",
            }
        ],
        "hold": [{"job": "j00014", "nodes": [["gpu-002", 8]], "due": 1.7e9 + 600}],
        "lapse": [{"job": "j00015"}],
        "wait": [
            {
                "job": "j00016",
                "needed": 8,
                "free": 1,
                "reclaimable": 2,
                "protected": 6,
                "owed_by": None,
                "reason": "wait-protected",
                "text": "what could be taken is still protected",
            }
        ],
    },
    "services": [
        {
            "service": "chat",
            "account": "lab.language",
            "rate_qps": 400.0,
            "wanted_gpus": 2,
            "allocated_gpus": 1,
            "lent_gpus": 1,
            "serves_qps": 432.6,
            "gpus": [{**_CUT, "allocated": True, "layout": _AFTER}],
        }
    ],
    "slices": [
        {
            "service": "chat",
            "reason": "unequal slices serve 1.4 times as much",
            "serves_qps": 432.6,
            "dispatcher": "divvy",
            "price": {"seconds": [4.0, 9.0], "lost_gpc_seconds": 31.5},
            "steps": ["drain 7g.80gb on GPU 0", "destroy 7g.80gb at 0", "create 3g.40gb at 0"],
            "gpus": [{"gpu": 0, **_CUT, "from": [_slice("7g.80gb", 0, 8)], "to": _AFTER}],
        }
    ],
    "routes": [
        {
            "prefill": "prefill",
            "decode": "chat",
            "from": "gpu-001:0",
            "to": "gpu-002:3",
            "routes": [{"kind": "rdma-affine", "share": 1.0}],
            "predicted_ms": 61.2,
            "change": "new",
            "reason": "61.2 ms; the next best is 122 ms",
        }
    ],
}
