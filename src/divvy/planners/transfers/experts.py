"""Experts by NVLink domain: an expert goes where its tokens come from, as far as the GPUs' slots allow.

Figure: the time of one dispatch (combine is the same backwards) of one layer: the busiest port of any GPU,
NVLink inside a domain, its NIC between domains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
GB = 1e9


@dataclass(frozen=True, slots=True)
class Fleet:
    """The GPUs that hold experts.

    Attributes:
        gpus: Their ids.
        domain: Index of the NVLink domain of each.
        nvlink_gb_per_s: One way, of each GPU.
        network_gb_per_s: One way, of each GPU's NICs.
        names: Names of the domains.
    """

    gpus: list[str]
    domain: NDArray[np.int64]
    nvlink_gb_per_s: float
    network_gb_per_s: float
    names: list[str]


def default_traffic(experts: int, domains: NDArray[np.int64], tokens: int, top_k: int, seed: int) -> Floats:
    """Return tokens by source GPU and expert: popular experts, domains that prefer some.

    An assumption for trying out; real traffic comes from a file.
    """
    rng = np.random.default_rng(seed)
    popular = 1.0 / (np.arange(experts) + 1) ** 0.6
    leaning = rng.gamma(0.8, 1.0, size=(int(domains.max()) + 1, experts))
    share = rng.permutation(popular)[None, :] * leaning[domains]
    return np.asarray(share / share.sum(axis=1, keepdims=True) * tokens * top_k)


def dispatch_s(fleet: Fleet, traffic: Floats, place: NDArray[np.int64], token_bytes: float) -> float:
    """Return the time of one dispatch for a placement (expert to GPU)."""
    count = len(fleet.gpus)
    target = np.zeros((count, count))
    np.add.at(target.T, place, traffic.T)
    np.fill_diagonal(target, 0.0)
    inside = fleet.domain[:, None] == fleet.domain[None, :]
    near, far = np.where(inside, target, 0.0), np.where(inside, 0.0, target)
    worst = 0.0
    for flow, rate in ((near, fleet.nvlink_gb_per_s), (far, fleet.network_gb_per_s)):
        worst = max(
            worst, float(max(flow.sum(axis=1).max(), flow.sum(axis=0).max())) * token_bytes / GB / rate
        )
    return worst


def plan_experts(
    fleet: Fleet, traffic: Floats, token_bytes: float, model: str, *, rounds: int = 4000
) -> dict[str, Any]:
    """Return placement, figure, bound and baseline as a ``divvy.route.experts/1`` document."""
    gpus, experts = traffic.shape
    naive = (
        np.arange(experts) * gpus // experts if experts >= gpus else np.arange(experts) * (gpus // experts)
    )
    place = _improve(fleet, traffic, token_bytes, _greedy(fleet, traffic), rounds)
    figure, base = (dispatch_s(fleet, traffic, p, token_bytes) for p in (place, naive))
    if base < figure:
        place, figure = naive, base
    crossing = [_crossing(fleet, traffic, p) for p in (place, naive)]
    bound = bound_s(fleet, traffic, token_bytes)
    return {
        "schema": "divvy.route.experts/1",
        "model": model,
        "experts": experts,
        "gpus": gpus,
        "domains": fleet.names,
        "plan": {
            "placement": {f"expert{e}": fleet.gpus[g] for e, g in enumerate(place.tolist())},
            "experts_per_domain": {
                name: int((fleet.domain[place] == d).sum()) for d, name in enumerate(fleet.names)
            },
        },
        "figure": {"dispatch_s": figure, "between_domains_fraction": crossing[0]},
        "bound": {
            "dispatch_s": bound,
            "why": "the larger of: domains as one port, experts divisible; the hottest expert alone",
        },
        "baseline": {
            "name": "naive placement in order",
            "dispatch_s": base,
            "between_domains_fraction": crossing[1],
        },
        "topkv_claim": {
            "text": "placement aware of NVLink domains, by analysis; no figure of its own",
            "source": "arXiv 2607.28633",
        },
    }


def _crossing(fleet: Fleet, traffic: Floats, place: NDArray[np.int64]) -> float:
    """Return the fraction of tokens that leave their domain."""
    outside = fleet.domain[:, None] != fleet.domain[place][None, :]
    return float(traffic[outside].sum() / traffic.sum())


def _greedy(fleet: Fleet, traffic: Floats) -> NDArray[np.int64]:
    """Return a placement: heavy experts first, each to its best domain with a slot, on its lightest GPU."""
    gpus, experts = traffic.shape
    slots = np.full(gpus, -(-experts // gpus))
    load = np.zeros(gpus)
    by_domain = np.zeros((len(fleet.names), experts))
    np.add.at(by_domain, fleet.domain, traffic)
    place = np.zeros(experts, dtype=np.int64)
    weight = traffic.sum(axis=0)
    for expert in np.argsort(-weight, kind="stable"):
        for domain in np.argsort(-by_domain[:, expert], kind="stable"):
            mine = np.flatnonzero((fleet.domain == domain) & (slots > 0))
            if len(mine):
                gpu = mine[np.argmin(load[mine])]
                place[expert] = gpu
                slots[gpu] -= 1
                load[gpu] += weight[expert]
                break
    return place


def _improve(
    fleet: Fleet, traffic: Floats, token_bytes: float, place: NDArray[np.int64], rounds: int
) -> NDArray[np.int64]:
    """Return the placement after swaps that make the busiest port less busy."""
    rng = np.random.default_rng(0)
    best = dispatch_s(fleet, traffic, place, token_bytes)
    experts = len(place)
    tries = min(rounds, max(200, 40_000_000 // max(1, traffic.shape[0] ** 2 + traffic.size)))
    for _ in range(tries if experts > 1 else 0):
        a, b = rng.choice(experts, size=2, replace=False)
        if place[a] == place[b]:
            continue
        place[a], place[b] = place[b], place[a]
        new = dispatch_s(fleet, traffic, place, token_bytes)
        if new < best:
            best = new
        else:
            place[a], place[b] = place[b], place[a]
    return place


def bound_s(fleet: Fleet, traffic: Floats, token_bytes: float) -> float:
    """Return a time that no placement beats: divisible experts, the ports of a domain as one; hot experts."""
    from scipy.optimize import linprog  # noqa: PLC0415 - scipy takes 0.2 s; parsers do without it

    minimise: Any = linprog
    gpus, experts = traffic.shape
    domains = len(fleet.names)
    size = np.bincount(fleet.domain, minlength=domains)
    by_domain = np.zeros((domains, experts))
    np.add.at(by_domain, fleet.domain, traffic)
    whole = by_domain.sum(axis=0)
    scale = token_bytes / GB / (fleet.network_gb_per_s * size)
    rows, right = [], []
    for d in range(domains):
        arrive, leave, room = np.zeros((3, domains * experts + 1))
        mine = slice(d * experts, (d + 1) * experts)
        arrive[mine] = (whole - by_domain[d]) * scale[d]
        leave[mine] = -by_domain[d] * scale[d]
        room[mine] = 1.0
        arrive[-1] = leave[-1] = -1.0
        rows += [arrive, leave, room]
        right += [0.0, -float(by_domain[d].sum()) * scale[d], float(-(-experts // gpus) * size[d])]
    equal = np.zeros((experts, domains * experts + 1))
    for d in range(domains):
        equal[np.arange(experts), d * experts + np.arange(experts)] = 1.0
    goal = np.zeros(domains * experts + 1)
    goal[-1] = 1.0
    answer = minimise(
        goal,
        A_ub=np.array(rows),
        b_ub=np.array(right),
        A_eq=equal,
        b_eq=np.ones(experts),
        bounds=(0, None),
        method="highs",
    )
    shared = float(answer.fun) if answer.status == 0 else 0.0
    return max(shared, _hottest(fleet, traffic, by_domain, token_bytes))


def _hottest(fleet: Fleet, traffic: Floats, by_domain: Floats, token_bytes: float) -> float:
    """Return the time that the worst expert needs on its best GPU: its tokens enter by that GPU's ports."""
    own = np.zeros_like(by_domain)
    np.maximum.at(own, fleet.domain, traffic)
    near = (by_domain - own) / fleet.nvlink_gb_per_s
    far = (by_domain.sum(axis=0)[None, :] - by_domain) / fleet.network_gb_per_s
    return float(np.maximum(near, far).min(axis=0).max()) * token_bytes / GB


def read_traffic(document: Any, gpus: Sequence[str], experts: int) -> Floats | None:
    """Return tokens by GPU and expert from a document: rows in order or by id; None if it does not fit."""
    rows = document.get("traffic", document) if isinstance(document, dict) else document
    if isinstance(rows, dict):
        rows = [rows.get(gpu) for gpu in gpus]
    try:
        table = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    if table.ndim == 1 and len(table) == experts:
        table = np.tile(table / len(gpus), (len(gpus), 1))
    is_good = (
        table.shape == (len(gpus), experts)
        and np.isfinite(table).all()
        and (table >= 0).all()
        and table.sum() > 0
    )
    return table if is_good else None
