"""The plan of the whole fleet as people and programs read it (``divvy.plan/1``), and the tenancy kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from divvy.control.codec import number, plan_document
from divvy.errors import UnavailableError
from divvy.fleet.mig.change import change_to_json
from divvy.fleet.mig.profile import Layout, Placement
from divvy.fleet.reason import TEXT, Reason
from divvy.fleet.snapshot import Snapshot
from divvy.fleet.tenant import Service
from divvy.planners.pipeline import Held, Means, OnePlan, Tenancy
from divvy.planners.slices.tenancy import Laid
from divvy.planners.transfers.tenancy import Lane

SCHEMA: Final = "divvy.plan/1"


def one_plan_document(
    plan: OnePlan, snapshot: Snapshot, before: Tenancy, means: Means, wanted: Mapping[str, int]
) -> dict[str, Any]:
    """Return what a plan changes, with reasons; call it before the plan is carried out.

    Args:
        plan: The plan.
        snapshot: What it was made on.
        before: What services held, cut and sent then.
        means: What it was made with.
        wanted: GPUs that each service wants.
    """
    jobs = _jobs(plan, snapshot)
    slices = [_slices(name, laid, plan.after, before) for name, laid in plan.slices.items()]
    changed = [one for one in slices if one["steps"]]
    routes = _routes(plan.after, before)
    moved = [one for one in routes if one["change"] != "same"]
    count = sum(len(jobs[part]) for part in ("start", "preempt", "hold", "lapse")) + len(changed) + len(moved)
    return {
        "schema": SCHEMA,
        "version": plan.jobs.version,
        "at": plan.jobs.now / 1000,
        "changes": count,
        "jobs": jobs,
        "services": [
            _service(service, plan.after, means, wanted.get(service.name, 0))
            for service in means.tenants.services
        ],
        "slices": slices,
        "routes": routes,
    }


def _jobs(plan: OnePlan, snapshot: Snapshot) -> dict[str, list[dict[str, Any]]]:
    document = plan_document(plan.jobs, snapshot)
    parts: dict[str, list[dict[str, Any]]] = {name: [] for name in ("start", "preempt", "hold", "lapse")}
    for decision in document["decisions"]:
        kind = decision.pop("do")
        parts[kind].append({**decision, "text": TEXT[Reason[decision["reason"].upper()]]})
    for slot in document["slots"]:
        kind = slot.pop("do")
        parts[kind].append({**slot, "due": slot["due"] / 1000} if "due" in slot else slot)
    parts["wait"] = [{**wait, "text": TEXT[Reason[wait["reason"].upper()]]} for wait in document["waits"]]
    return parts


def _service(service: Service, after: Tenancy, means: Means, wanted: int) -> dict[str, Any]:
    held = after.held.get(service.name, ())
    return {
        "service": service.name,
        "account": service.account,
        "rate_qps": service.rate_qps,
        "wanted_gpus": wanted,
        "allocated_gpus": sum(one.allocated for one in held),
        "lent_gpus": sum(not one.allocated for one in held),
        "serves_qps": round(means.curves[service.name].rate(len(held)), 2),
        "gpus": [
            {
                "lease": one.lease,
                "node": one.node,
                "device": one.device,
                "allocated": one.allocated,
                "layout": layout_document(one.layout),
            }
            for one in held
        ],
    }


def _slices(name: str, laid: Laid, after: Tenancy, before: Tenancy) -> dict[str, Any]:
    old = {one.lease: one.layout for one in before.held.get(name, ())}
    change = change_to_json(laid.change)
    return {
        "service": name,
        "reason": laid.text,
        "serves_qps": round(laid.rate_qps, 2),
        "dispatcher": laid.dispatcher,
        "price": {"seconds": change["seconds"], "lost_gpc_seconds": change["lost_gpc_seconds"]},
        "steps": [step.text for step in laid.change.steps],
        "gpus": [
            {
                "gpu": place,
                "lease": one.lease,
                "node": one.node,
                "device": one.device,
                "from": layout_document(old.get(one.lease, ())),
                "to": layout_document(one.layout),
            }
            for place, one in enumerate(after.held[name])
            if old.get(one.lease, ()) != one.layout
        ],
    }


def _routes(after: Tenancy, before: Tenancy) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for (prefill, decode), lanes in after.lanes.items():
        old = {lane.source: lane for lane in before.lanes.get((prefill, decode), ())}
        for lane in lanes:
            rows.append({"prefill": prefill, "decode": decode, **_lane(lane), **_why(lane)})
            rows[-1]["change"] = _what(old.pop(lane.source, None), lane)
        rows += [
            {
                "prefill": prefill,
                "decode": decode,
                **_lane(lane),
                "change": "end",
                "reason": "its GPU is gone",
            }
            for lane in old.values()
        ]
    return rows


def _what(old: Lane | None, lane: Lane) -> str:
    if old is None:
        return "new"
    return "same" if (old.target, old.routes) == (lane.target, lane.routes) else "move"


def _why(lane: Lane) -> dict[str, str]:
    if not lane.target:
        return {"reason": "no GPU that takes caches can be reached"}
    if not lane.others:
        return {"reason": "the only GPU that takes caches"}
    return {"reason": f"{lane.predicted_s * 1e3:.3g} ms; the next best is {lane.others * 1e3:.3g} ms"}


def _lane(lane: Lane) -> dict[str, Any]:
    return {
        "from": lane.source,
        "to": lane.target or None,
        "routes": [{"kind": kind, "share": share} for kind, share in lane.routes],
        "predicted_ms": number(round(lane.predicted_s * 1e3, 6)),
    }


# -- what is kept ------------------------------------------------------------------------------------------


def layout_document(layout: Layout) -> list[dict[str, Any]]:
    """Return a layout as plain values; empty for a GPU that is not cut."""
    return [{"profile": one.profile, "start": one.start, "size": one.size} for one in layout]


def tenancy_document(tenancy: Tenancy) -> dict[str, Any]:
    """Return a tenancy as plain values."""
    return {
        "held": {
            name: [
                [one.lease, one.node, one.device, one.allocated, layout_document(one.layout)] for one in some
            ]
            for name, some in tenancy.held.items()
        },
        "lanes": [
            [
                prefill,
                decode,
                [
                    [lane.source, lane.target, [list(r) for r in lane.routes], lane.predicted_s, lane.others]
                    for lane in some
                ],
            ]
            for (prefill, decode), some in tenancy.lanes.items()
        ],
        "cut_at": dict(tenancy.cut_at),
    }


def read_tenancy(document: Mapping[str, Any]) -> Tenancy:
    """Return the tenancy that `tenancy_document` wrote.

    Raises:
        UnavailableError: If the document is damaged.
    """
    try:
        held = {
            str(name): tuple(
                Held(str(lease), str(node), int(device), bool(allocated), _layout(layout))
                for lease, node, device, allocated, layout in some
            )
            for name, some in document["held"].items()
        }
        lanes = {
            (str(prefill), str(decode)): tuple(
                Lane(str(a), str(b), tuple((str(k), float(s)) for k, s in routes), float(t), float(o))
                for a, b, routes, t, o in some
            )
            for prefill, decode, some in document["lanes"]
        }
        return Tenancy(held, lanes, {str(name): int(at) for name, at in document["cut_at"].items()})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnavailableError.one("tenancy-damaged", f"damaged record of tenants: {error!r}") from error


def _layout(rows: Any) -> Layout:
    return tuple(Placement(int(row["start"]), int(row["size"]), str(row["profile"])) for row in rows)
