"""From one tensor-parallel layout to another: which heads go from which rank to which, in what pieces.

With grouped queries (GQA) a rank holds kv_heads/tp heads; with more ranks than heads each head is held by
several ranks. With latent attention (MLA) each rank holds everything. Where several ranks hold the same
bytes, the work is divided among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from divvy.perf.transfer import COALESCE_GB_PER_S, COALESCE_STARTUP_S, KINDS
from divvy.planners.transfers.models import Shape

GB = 1e9


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes from one rank to another.

    Attributes:
        source: Rank of the old layout.
        target: Rank of the new layout.
        first: First head; with a latent, first part in `parts`.
        count: Heads; with a latent, 1 of `parts`.
        parts: Parts that a latent is divided into, 1 for heads.
        size_bytes: Bytes.
    """

    source: int
    target: int
    first: int
    count: int
    parts: int
    size_bytes: int


def held(kv_heads: int, ranks: int, rank: int) -> range:
    """Return the heads that a rank holds."""
    if ranks >= kv_heads:
        head = rank * kv_heads // ranks
        return range(head, head + 1)
    return range(rank * kv_heads // ranks, (rank + 1) * kv_heads // ranks)


def moves(shape: Shape, source_tp: int, target_tp: int, tokens: int) -> list[Move]:
    """Return what has to move, each byte that a target rank needs exactly once."""
    if shape.latent:
        return _latent(shape, source_tp, target_tp, tokens)
    head_bytes = 2 * shape.head_dim * shape.bytes_per_value * shape.layers * tokens
    owners = [
        [r for r in range(source_tp) if head in held(shape.kv_heads, source_tp, r)]
        for head in range(shape.kv_heads)
    ]
    given = [0] * source_tp
    out: list[Move] = []
    for target in range(target_tp):
        heads = held(shape.kv_heads, target_tp, target)
        start = 0
        while start < len(heads):
            options = owners[heads[start]]
            source = min(options, key=lambda r: (given[r], r))
            end = start
            while end < len(heads) and source in owners[heads[end]]:
                end += 1
            given[source] += end - start
            out.append(Move(source, target, heads[start], end - start, 1, (end - start) * head_bytes))
            start = end
    return out


def _latent(shape: Shape, source_tp: int, target_tp: int, tokens: int) -> list[Move]:
    """Return the moves of a latent: each target takes an equal part from each of some sources."""
    total = shape.kv_bytes_per_token * tokens
    out: list[Move] = []
    for target in range(target_tp):
        for part in range(source_tp):
            size = total * (part + 1) // source_tp - total * part // source_tp
            out.append(Move((part + target) % source_tp, target, part, 1, source_tp, size))
    return out


def descriptors(shape: Shape, move: Move, tokens: int, block_tokens: int, *, heads_first: bool) -> int:
    """Return the pieces of memory that a move touches in a paged cache.

    Args:
        shape: The model.
        move: What moves.
        tokens: Tokens of the cache.
        block_tokens: Tokens of a page.
        heads_first: Whether a page holds head by head (HND), so that neighbouring heads are one piece; else
            (NHD) each token is a piece, unless the rank moves all heads that it holds.
    """
    blocks = -(-tokens // block_tokens)
    if shape.latent:
        mine = blocks * (move.first + 1) // move.parts - blocks * move.first // move.parts
        return max(1, mine) * shape.layers
    return 2 * shape.layers * (blocks if heads_first else tokens)


def plan_layout(
    shape: Shape,
    source_tp: int,
    target_tp: int,
    *,
    tokens: int = 8192,
    block_tokens: int = 16,
    heads_first: bool = True,
    budget: int | None = None,
    gb_per_s: float = 50.0,
    kind: str = "rdma-affine",
) -> dict[str, Any]:
    """Return the plan, its figure, the bound and the baseline as a ``divvy.route.layout/1`` document.

    Args:
        shape: The model.
        source_tp: Ranks now.
        target_tp: Ranks then.
        tokens: Tokens of the cache that moves.
        block_tokens: Tokens of a page.
        heads_first: Layout inside a page (see `descriptors`).
        budget: Most descriptors of a source rank.
        gb_per_s: Rate of each rank, on a route of the `kind`.
        kind: Kind of route.
    """
    todo = moves(shape, source_tp, target_tp, tokens)
    pages = [descriptors(shape, m, tokens, block_tokens, heads_first=heads_first) for m in todo]
    count = dict(enumerate(pages))
    options = {name: _ranks(todo, count, shape, name) for name in ("blocks", "layers", "whole")}
    most_received = max(_received(todo).values())
    times = {
        n: max(_time(rows, gb_per_s, kind), KINDS[kind].startup_s + most_received / GB / gb_per_s)
        for n, rows in options.items()
    }
    plan = _chosen(shape, todo, count, options, times, budget)
    chosen = str(plan["method"])
    ranks = {"from": {"tp": source_tp}, "to": {"tp": target_tp}}
    return {
        "schema": "divvy.route.layout/1",
        "model": shape.name,
        **ranks,
        "tokens": tokens,
        "replicated": bool(shape.latent) or max(source_tp, target_tp) > shape.kv_heads,
        "plan": plan,
        "figure": {"seconds": times[chosen], "descriptors": _most(options[chosen])},
        **_beside(shape, todo, options["blocks"], (tokens, block_tokens), (gb_per_s, kind)),
        "topkv_claim": None,
    }


def _chosen(
    shape: Shape,
    todo: list[Move],
    count: dict[int, int],
    options: dict[str, list[dict[str, Any]]],
    times: dict[str, float],
    budget: int | None,
) -> dict[str, Any]:
    """Return the fastest method within the budget; the one with fewest descriptors where none is."""
    fits = [n for n, rows in options.items() if budget is None or _most(rows) <= budget]
    chosen = min(fits or ["whole"], key=lambda n: times[n])
    return {
        "method": chosen,
        "says": _SAYS[chosen],
        "descriptor_budget": budget,
        "within_budget": bool(fits),
        "moves": [_move(shape, m, _merged(shape, count[i], chosen)) for i, m in enumerate(todo)],
        "ranks": options[chosen],
        "alternatives": [_alternative(n, times[n], options[n]) for n in options],
    }


def _alternative(method: str, seconds: float, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a method that was weighed."""
    return {"method": method, "seconds": seconds, "descriptors": _most(rows)}


def _most(rows: list[dict[str, Any]]) -> int:
    """Return the descriptors of the rank with the most."""
    return max(int(row["descriptors"]) for row in rows)


def _move(shape: Shape, move: Move, pieces: int) -> dict[str, Any]:
    """Return a move for the document."""
    what = (
        {"part": [move.first, move.parts]}
        if shape.latent
        else {"heads": [move.first, move.first + move.count]}
    )
    ranks = {"from_rank": move.source, "to_rank": move.target}
    return {**ranks, **what, "bytes": move.size_bytes, "descriptors": pieces}


def _received(todo: list[Move]) -> dict[int, int]:
    """Return the bytes that each target rank receives."""
    out: dict[int, int] = {}
    for move in todo:
        out[move.target] = out.get(move.target, 0) + move.size_bytes
    return out


def _beside(
    shape: Shape,
    todo: list[Move],
    rows: list[dict[str, Any]],
    pages: tuple[int, int],
    route: tuple[float, str],
) -> dict[str, Any]:
    """Return the bound and the baseline: every head of every page sent by itself."""
    gb_per_s, kind = route
    mine = {
        row["rank"]: sum(_per_head(shape, m, *pages) for m in todo if m.source == row["rank"]) for row in rows
    }
    per_head = [{**row, "descriptors": mine[row["rank"]]} for row in rows]
    most_received = max(_received(todo).values())
    busiest = max([row["bytes"] for row in rows] + [most_received])
    return {
        "bound": {
            "seconds": KINDS[kind].startup_s + busiest / GB / gb_per_s,
            "why": "the busiest rank's bytes at its full rate, one start-up",
        },
        "baseline": {
            "name": "per-head descriptors",
            "seconds": max(
                _time(per_head, gb_per_s, kind), KINDS[kind].startup_s + most_received / GB / gb_per_s
            ),
            "descriptors": max(row["descriptors"] for row in per_head),
        },
    }


_SAYS = {
    "blocks": "send each page's heads as one piece; nothing is gathered",
    "layers": "gather each layer's pages into a buffer, send one piece per layer and pair, scatter there",
    "whole": "gather all for a pair of ranks into a buffer, send one piece, scatter at the target",
}


def _per_head(shape: Shape, move: Move, tokens: int, block_tokens: int) -> int:
    """Return the pieces if every head of every page is sent by itself."""
    return (
        2 * shape.layers * -(-tokens // block_tokens) * move.count
        if not shape.latent
        else shape.layers * tokens
    )


def _merged(shape: Shape, count: int, method: str) -> int:
    """Return the pieces of a move after gathering."""
    return {"blocks": count, "layers": min(count, shape.layers), "whole": 1}[method]


def _ranks(todo: list[Move], count: dict[int, int], shape: Shape, method: str) -> list[dict[str, Any]]:
    """Return bytes and descriptors of each source rank."""
    rows: dict[int, dict[str, Any]] = {}
    for i, move in enumerate(todo):
        row = rows.setdefault(
            move.source,
            {"rank": move.source, "bytes": 0, "descriptors": 0, "gathered_bytes": 0, "kernels": 0},
        )
        row["bytes"] += move.size_bytes
        row["descriptors"] += _merged(shape, count[i], method)
        if method != "blocks":
            row["gathered_bytes"] += move.size_bytes
            row["kernels"] += shape.layers if method == "layers" else 1
    return [rows[rank] for rank in sorted(rows)]


def _time(rows: list[dict[str, Any]], gb_per_s: float, kind: str) -> float:
    """Return when the slowest rank is done; layers overlap with sending, but for the first."""
    cost = KINDS[kind]
    worst = 0.0
    for row in rows:
        stream = row["bytes"] / GB / gb_per_s
        posts = row["descriptors"] * cost.descriptor_s
        gather = row["kernels"] * COALESCE_STARTUP_S + 2 * row["gathered_bytes"] / GB / COALESCE_GB_PER_S
        if row["kernels"] > 1:
            gather = max(gather / row["kernels"], gather - stream)
        worst = max(worst, cost.startup_s + max(stream, posts) + gather)
    return worst
