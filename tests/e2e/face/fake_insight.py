"""What the fake API answers besides the fleet: documents on the page, what-if, claims, the journal, who asks."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from fake_fleet import RefusedError
from fake_plan import ONE_PLAN, ROUTER

from divvy.errors import DivvyError
from divvy.fleet.topology.document import read_topology
from divvy.fleet.topology.picture import draw
from divvy.fleet.topology.read import build
from divvy.service.claims import claims
from divvy.service.shown import ShownDocuments

MATRIX = "\tGPU0\tGPU1\tNIC0\nGPU0\tX\tNV4\tPIX\nGPU1\tNV4\tX\tSYS\nNIC0\tPIX\tSYS\tX\n"

PLAN: dict[str, Any] = {
    "schema": "divvy.slices.plan/1",
    "sku": "A100-80GB",
    "gpus": 2,
    "model": "chat",
    "planner": "divvy",
    "dispatcher": "divvy:near=2",
    "prices": {"1": 1.0},
    "slo_ms": 20.0,
    "percentile": 95.0,
    "per_bucket": False,
    "batches": {"1": 1.0},
    "layout": [
        {
            "gpu": 0,
            "slices": [
                *({"profile": "1g.10gb", "start": n} for n in range(4)),
                {"profile": "3g.40gb", "start": 4},
            ],
        },
        {"gpu": 1, "slices": [{"profile": "4g.40gb", "start": 0}, {"profile": "3g.40gb", "start": 4}]},
    ],
    "rate_qps": 624.0,
    "p50_ms": 10.6,
    "p95_ms": 19.4,
    "p99_ms": 36.9,
    "buckets": [{"batches": [1, 4], "p95_ms": 17.4, "p99_ms": 24.0, "met": True, "queries": 331}],
    "bound_qps": 861.7,
    "of_bound": 0.724,
    "baseline": {"best_homogeneous": "homogeneous:3+fifs", "qps": 432.6},
    "paris_qps": 505.5,
    "paris": "paris+elsa",
    "seeds": {"search": [0], "confirm": [1000]},
    "intervals": {"rate_qps": [622.8, 657.1]},
    "per_seed_qps": [624.0],
    "queries_per_seed": 12000,
    "explanation": ["259 candidates raced by replay"],
    "oddities": [],
    "emit": {"form": "nvidia-smi", "text": "nvidia-smi mig -i 0 -cgi 9 -C\n"},
}

ROUTES: dict[str, Any] = {
    "schema": "divvy.route.plan/1",
    "topology": "node.txt",
    "planner": "divvy",
    "transfers": [
        {
            "id": "t0",
            "from": "GPU0",
            "to": "GPU1",
            "bytes": 3_000_000_000,
            "release": 0.0,
            "routes": [
                {
                    "kind": "nvlink",
                    "via": [],
                    "edges": [{"a": "GPU0", "b": "GPU1", "times": 1}],
                    "share": 1.0,
                    "coalesced": False,
                }
            ],
            "start": 0.0,
            "finish": 0.03,
            "deadline": None,
            "late_s": 0.0,
            "bottleneck": "GPU0 -> GPU1",
            "rejected": [
                {"kind": "rdma-affine", "predicted_s": 0.06, "via": ["NIC0"], "why": "slower even alone"}
            ],
        }
    ],
    "makespan_s": 0.03,
    "bound_s": 0.0299,
    "of_bound": 1.003,
    "unplanned": [],
    "costs": None,
}


def _side(name: str, occupied: float) -> dict[str, Any]:
    return {
        "side": name,
        "policy": "budget",
        "occupancy_while_contended": occupied,
        "delivered_over_owed": {"period": 0.97, "day": 0.95, "hour": 0.9},
        "preemptions": 12,
    }


def _changed(account: str, before: float, after: float) -> dict[str, Any]:
    return {
        "account": account,
        "share": [0.6, 0.5],
        "jobs": 40,
        "wait_seconds": {"p50": [before, after], "p90": [900.0, 700.0], "mean": [300.0, 200.0]},
        "longer": 4.0,
        "shorter": 10.0,
        "charged_gpu_hours": [100.5, 98.25],
    }


def whatif(body: dict[str, Any]) -> dict[str, Any]:
    """Return an answer to a what-if question."""
    rows = [_changed("lab.vision.mapping", 60.0, 240.0), _changed("lab.language", 600.0, 30.0)]
    return {
        "schema": "divvy.whatif/1",
        "as_of": 1.0,
        "age_seconds": 0.0,
        "asked": {"shares": body["shares"], "policy": body["policy"] or "budget", "hours": body["hours"]},
        "basis": {
            "budget_version": 3,
            "policy": "budget",
            "from_at": 1.7e9,
            "until_at": 1.7e9 + 86_400,
            "jobs": 80,
            "drawn": 5,
            "left_out": 1,
            "gpus": 48,
        },
        "sides": [_side("now", 0.96), _side("other", 0.94)],
        "change": {"by_account": rows, "all": rows[0]},
    }


@cache
def topology() -> dict[str, Any]:
    """Return a small topology as its document."""
    return json.loads(json.dumps(build([("node.txt", MATRIX)]).to_json()))


class FakeInsight:
    """Answers of the routes that are not about the fleet; documents are kept by the real code."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.documents = ShownDocuments(Path(self._directory.name) / "shown")
        self.role = "admin"
        self.asked: list[dict[str, Any]] = []

    def close(self) -> None:
        """Remove the documents."""
        self._directory.cleanup()

    def fill(self) -> None:
        """Show a plan of slices, a topology, routes, a router and a plan of the fleet."""
        shown = {"chat": PLAN, "node": topology(), "batch": ROUTES, "serve-chat": ROUTER, "fleet": ONE_PLAN}
        for name, document in shown.items():
            command = "divvy plan --services s.toml --json" if name == "fleet" else f"divvy {name}"
            self.documents.put(name, document, by="ada", at=1.7e9, command=command, example=name == "chat")

    def answer(self, method: str, steps: list[str], body: Any, accounts: list[str]) -> Any:
        """Return an answer, None where there is no such route."""
        try:
            return self._answer(method, steps, body, accounts)
        except DivvyError as error:
            raise RefusedError(error.status, error.code, error.title) from error

    def _answer(  # noqa: PLR0911 - one per route
        self, method: str, steps: list[str], body: Any, accounts: list[str]
    ) -> Any:
        aged = {"as_of": 1.7e9, "age_seconds": 0.0}
        match method, *steps:
            case "GET", "me":
                mine = accounts if self.role == "admin" else accounts[:1] if self.role == "owner" else []
                rights = {"may_split": mine, "may_drain": self.role == "admin", "via": "token"}
                return {"schema": "divvy.me/1", "user": "ada", "role": self.role, "accounts": None, **rights}
            case "GET", "policies":
                return {
                    "schema": "divvy.policies/1",
                    "policies": [{"name": n, "source": ""} for n in ("budget", "fifo")],
                }
            case "GET", "claims":
                return {"schema": "divvy.claims/1", "claims": claims()}
            case "POST", "whatif":
                self.asked.append(body)
                return whatif(body)
            case "GET", "trace":
                return {"traceEvents": [], "displayTimeUnit": "ms", "otherData": {"runs": 0}}
            case "GET", "shown":
                return {"schema": "divvy.shown/1", **aged, "documents": self.documents.listed()}
            case "GET", "shown", name:
                return {"schema": "divvy.shown.document/1", **aged, **self.documents.get(name)}
            case "PUT", "shown", name:
                told = {"by": "ada", "at": 1.7e9, "command": body["command"], "example": body["example"]}
                return {"schema": "divvy.shown.kept/1", **self.documents.put(name, body["document"], **told)}
            case "DELETE", "shown", name:
                self.documents.remove(name)
                return {"schema": "divvy.shown.removed/1", "name": name}
            case "GET", "decisions":
                return {"schema": "divvy.decisions/1", **aged, "passes": [PASS], "next": 7}
            case _:
                return None

    def picture(self, name: str) -> bytes:
        """Return the picture of a topology."""
        return draw(read_topology(name, json.dumps(self.documents.get(name)["document"]))).encode()


PASS: dict[str, Any] = {
    "seq": 41,
    "at": 1.7e9,
    "version": 90,
    "events": 3,
    "decisions": [
        {
            "kind": kind,
            "job": job,
            "account": "lab.language",
            "gpus": 2,
            "reason": {"code": "started-free", "text": text},
            "placement": [{"node": "gpu-001", "gpus": 2}],
            "protected": True,
            "by": by,
            "victim_balance": 1.4 if by else None,
            "balance": 0.6 if by else None,
        }
        for kind, job, text, by in (
            ("preempt", "j00003", "an under-served account claims its share", "j00013"),
            ("start", "j00013", "started on free devices", None),
        )
    ],
    "slots": [{"kind": "hold", "job": "j00014", "placement": [], "due_at": 1.7e9 + 600}],
}
