"""The process of a Ray Serve stand: its replicas are slices of the lab, its load is the generator's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from divvy.adapters.lab.work import Line
from divvy.adapters.load.openloop import fire_now
from divvy.adapters.load.volley import Plan, to_lists
from divvy.adapters.rayserve.stand import converse


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON can hold it."""
    return {
        "due_us": plan.due_us.tolist(),
        "batches": plan.batches.tolist(),
        "path": plan.path,
        "slo_us": plan.slo_us,
        "most_late": plan.most_late,
    }


def _fire(url: str, document: Mapping[str, Any]) -> dict[str, Any]:
    due, batches = (np.array(document[name], np.int64) for name in ("due_us", "batches"))
    plan = Plan(due, batches, document["path"], slo_us=document["slo_us"], most_late=document["most_late"])
    return to_lists(fire_now(url, plan, patience_seconds=3.0))


if __name__ == "__main__":
    converse(Line, _fire)
