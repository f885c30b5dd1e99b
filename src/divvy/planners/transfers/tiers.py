"""Where a working set lies: HBM, host memory, CXL, NVMe, by how often pieces are read and what it costs.

A read from a tier takes its latency and the piece's bytes at the rate of the route to the GPU. Moving the
densest pieces (reads per byte) up is optimal for a placement that stays; the bound allows any movement.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from divvy.errors import Fault, InputError
from divvy.units import parse_bytes

GB = 1e9
_MOST_SHOWN = 2000
_FORM = '[{"id", "reads", "bytes"?}], a list of ids, or lines with hash_ids (Mooncake trace)'


@dataclass(frozen=True, slots=True)
class Tier:
    """A place for pieces.

    Attributes:
        name: ``hbm``, ``host``, ``cxl``, ``nvme``.
        capacity_bytes: Room.
        latency_s: Of a read.
        gb_per_s: Rate of a read into the GPU.
        source: Where capacity and rate came from.
    """

    name: str
    capacity_bytes: float
    latency_s: float
    gb_per_s: float
    source: str

    def read_s(self, size_bytes: float) -> float:
        """Return the time of one read."""
        return self.latency_s + size_bytes / GB / self.gb_per_s


@dataclass(frozen=True, slots=True)
class Access:
    """What is read.

    Attributes:
        sizes: Bytes by piece.
        reads: Reads by piece.
        order: Pieces in the order of reading; empty where only the numbers are known.
    """

    sizes: dict[str, float]
    reads: dict[str, float]
    order: tuple[str, ...] = ()


def read_access(name: str, lines: Sequence[Any], working_set_bytes: float) -> Access:
    """Return the accesses of a document.

    Args:
        name: For errors.
        lines: The entries: ``{"id", "bytes"?, "reads"}``, or ids in the order of reading, or requests with
            ``hash_ids`` (as in the Mooncake trace).
        working_set_bytes: Size of everything; pieces without a size share it equally.

    Raises:
        InputError: If there is no access in it.
    """
    order: list[str] = []
    sizes: dict[str, float] = {}
    reads: dict[str, float] = {}
    faults: list[Fault] = []
    for position, entry in enumerate(lines):
        _add(entry, f"{name}:[{position}]", (order, sizes, reads), faults)
    if faults:
        raise InputError(f"{name} has {len(faults)} fault{'s' if len(faults) > 1 else ''}", faults)
    if order:
        reads = {key: float(n) for key, n in Counter(order).items()}
    if not reads or sum(reads.values()) <= 0:
        raise InputError.one(
            "access-empty",
            f"{name} holds no access",
            path="--access",
            allowed=_FORM,
        )
    if working_set_bytes <= 0:
        raise InputError.one("working-set", "a working set of nothing", path="--working-set")
    if any(sizes.get(k, 0.0) for k in reads):
        scale = working_set_bytes / sum(sizes.get(k, 0.0) for k in reads)
        sizes = {k: sizes.get(k, 0.0) * scale for k in reads}
    else:
        sizes = dict.fromkeys(reads, working_set_bytes / len(reads))
    return Access(sizes, reads, tuple(order))


def _add(
    entry: Any,
    where: str,
    into: tuple[list[str], dict[str, float], dict[str, float]],
    faults: list[Fault],
) -> None:
    """Add one entry to the order of reading, the sizes and the numbers of reads; or a fault."""
    order, sizes, reads = into
    if isinstance(entry, dict) and isinstance(entry.get("hash_ids"), list):
        order.extend(str(i) for i in entry["hash_ids"])
    elif isinstance(entry, dict) and "id" in entry:
        key = str(entry["id"])
        count = next((entry[k] for k in ("reads", "reads_per_s") if entry.get(k) is not None), 1)
        reads[key] = reads.get(key, 0.0) + _number(count, f"{where}.reads", faults)
        if "bytes" in entry:
            sizes[key] = _number(entry["bytes"], f"{where}.bytes", faults)
    elif isinstance(entry, str | int) and not isinstance(entry, bool):
        order.append(str(entry))
    else:
        faults.append(Fault("access", where, f"{entry!r:.60} is no access", _FORM))


def _number(value: Any, where: str, faults: list[Fault]) -> float:
    """Return a number that is at least 0; text such as ``5GB`` is a size."""
    try:
        number = float(parse_bytes(value)) if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 0 <= number < math.inf:
        faults.append(Fault("access", where, f"{value!r:.60} is no number of at least 0", _FORM))
        return 0.0
    return number


def plan_tiers(tiers: Sequence[Tier], access: Access) -> dict[str, Any]:
    """Return the plan, its figure, the bound and baselines as a ``divvy.route.tiers/1`` document.

    Raises:
        InputError: If the working set does not fit into all tiers together.
    """
    total, room = sum(access.sizes.values()), sum(t.capacity_bytes for t in tiers)
    if total > room * (1 + 1e-9):
        raise InputError.one(
            "working-set",
            f"the working set of {total / GB:.4g} GB does not fit into {room / GB:.4g} GB of "
            f"{', '.join(t.name for t in tiers)}",
            path="--working-set",
            fix="add a tier (an NVMe drive, --cxl) or make the set smaller",
        )
    dense = sorted(access.sizes, key=lambda k: (-access.reads[k] / max(access.sizes[k], 1.0), k))
    placed = _fill(tiers, access, dense)
    candidates = {"static, densest first": _mean(tiers, access, placed)}
    name, base = "first come, first placed", _mean(tiers, access, _fill(tiers, access, list(access.sizes)))
    if access.order:
        name, base = "LRU across tiers", _lru(tiers, access)
        candidates[name] = base
    method = min(candidates, key=lambda key: candidates[key])
    bound = _movable_bound(tiers, access) if access.order else _fractional(tiers, access, dense)
    return {
        "schema": "divvy.route.tiers/1",
        "working_set_bytes": total,
        "reads": sum(access.reads.values()),
        "tiers": [asdict(tier) for tier in tiers],
        "plan": {
            "method": method,
            "placement": _placement(tiers, access, placed),
            "pieces": {k: tiers[i].name for k, i in placed.items()} if len(placed) <= _MOST_SHOWN else None,
        },
        "figure": {"mean_read_s": candidates[method]},
        "bound": {
            "mean_read_s": bound,
            "why": "Belady's replacement across tiers" if access.order else "fractional placement",
        },
        "baseline": {"name": name, "mean_read_s": base},
        "topkv_claim": _claim(tiers, access),
    }


def _claim(tiers: Sequence[Tier], access: Access) -> dict[str, Any]:
    """Return what TopKV says of CXL memory, beside what the model here gives."""
    return {
        "cxl_capacity_over_hbm": 6,
        "cxl_latency_over_nvme": 1 / 86,
        "here_cxl_latency_over_nvme": _latency_ratio(tiers, access),
        "how": "by analysis, latency of one access; a read here is also the piece's bytes",
        "source": "arXiv 2607.28633",
    }


def _placement(tiers: Sequence[Tier], access: Access, placed: dict[str, int]) -> list[dict[str, Any]]:
    """Return what lies on each tier."""
    count = sum(access.reads.values())
    rows = []
    for i, tier in enumerate(tiers):
        mine = [k for k in placed if placed[k] == i]
        held, read = sum(access.sizes[k] for k in mine), sum(access.reads[k] for k in mine)
        rows.append({"tier": tier.name, "pieces": len(mine), "bytes": held, "reads_fraction": read / count})
    return rows


def _latency_ratio(tiers: Sequence[Tier], access: Access) -> float | None:
    """Return the time of a read of a typical piece from CXL over one from NVMe."""
    by_name = {t.name: t for t in tiers}
    if "cxl" not in by_name or "nvme" not in by_name:
        return None
    size = sum(access.sizes.values()) / len(access.sizes)
    return by_name["cxl"].read_s(size) / by_name["nvme"].read_s(size)


def _fill(tiers: Sequence[Tier], access: Access, order: Sequence[str]) -> dict[str, int]:
    """Return the tier of each piece: in this order, each into the first tier with room."""
    room = [t.capacity_bytes for t in tiers]
    out: dict[str, int] = {}
    for key in order:
        fits = next(
            (i for i, left in enumerate(room) if left >= access.sizes[key] * (1 - 1e-12)), len(room) - 1
        )
        room[fits] -= access.sizes[key]
        out[key] = fits
    return out


def _mean(tiers: Sequence[Tier], access: Access, placed: dict[str, int]) -> float:
    """Return the mean time of a read for a placement."""
    total = sum(access.reads[k] * tiers[i].read_s(access.sizes[k]) for k, i in placed.items())
    return total / sum(access.reads.values())


def _fractional(tiers: Sequence[Tier], access: Access, dense: Sequence[str]) -> float:
    """Return the mean read time if pieces could be cut: no placement that stays is better."""
    room = [t.capacity_bytes for t in tiers]
    tier, total = 0, 0.0
    for key in dense:
        left = access.sizes[key]
        while left > 1e-9 and tier < len(tiers):
            part = min(left, room[tier])
            share = part / access.sizes[key] if access.sizes[key] else 1.0
            total += access.reads[key] * share * tiers[tier].read_s(access.sizes[key])
            room[tier] -= part
            left -= part
            if room[tier] <= 1e-9 and tier + 1 < len(tiers):
                tier += 1
            elif room[tier] <= 1e-9:
                break
    return total / sum(access.reads.values())


def _lru(tiers: Sequence[Tier], access: Access) -> float:
    """Return the mean read time if each read moves its piece to the top and the oldest sink.

    A piece lies as deep as the bytes that were read after it: a sum over times, kept in a Fenwick tree, so
    that a trace of 100,000 reads takes a second.
    """
    pieces = list(access.sizes)
    places = len(pieces) + len(access.order)
    tree = [0.0] * (places + 1)
    total = sum(access.sizes.values())

    def add(at: int, amount: float) -> None:
        at += 1
        while at <= places:
            tree[at] += amount
            at += at & -at

    def below(at: int) -> float:
        held = 0.0
        while at > 0:
            held += tree[at]
            at -= at & -at
        return held

    at_of = {key: len(pieces) - 1 - i for i, key in enumerate(pieces)}
    for key, at in at_of.items():
        add(at, access.sizes[key])
    spent = 0.0
    for i, key in enumerate(access.order):
        size = access.sizes[key]
        depth = max(0.0, total - below(at_of[key] + 1))
        spent += _at(tiers, depth, size).read_s(size)
        add(at_of[key], -size)
        at_of[key] = len(pieces) + i
        add(at_of[key], size)
    return spent / len(access.order)


def _at(tiers: Sequence[Tier], depth: float, size: float) -> Tier:
    """Return the tier at a depth of a stack of pieces."""
    end = depth + size
    for tier in tiers:
        if end <= tier.capacity_bytes * (1 + 1e-9):
            return tier
        end -= tier.capacity_bytes
    return tiers[-1]


def _movable_bound(tiers: Sequence[Tier], access: Access) -> float:
    """Return a mean read time that no movement of pieces beats: Belady's misses beyond each tier.

    With the capacities of the first tiers together, at least so many reads miss them whatever one does (for
    pieces of the largest size that fit; pieces count as the smallest, which only lowers the bound).
    """
    smallest = max(min(access.sizes.values()), 1.0)
    beyond = [float(len(access.order))]
    room = 0.0
    for tier in tiers:
        room += tier.capacity_bytes
        slots = int(room // smallest)
        first = max(0, len(set(access.order)) - slots)  # pieces that cannot lie there before they are read
        beyond.append(float(_belady_misses(access.order, slots) + first) if slots else beyond[0])
    total = 0.0
    for i, tier in enumerate(tiers):
        from_here = beyond[i] - beyond[i + 1] if i + 1 < len(tiers) else beyond[i]
        total += max(0.0, from_here) * tier.read_s(smallest)
    return total / len(access.order)


def _belady_misses(order: Sequence[str], slots: int) -> int:
    """Return the misses of the best replacement, first reads not counted."""
    if slots <= 0:
        return len(order)
    following: dict[str, int] = {}
    when = [0] * len(order)
    for i in range(len(order) - 1, -1, -1):
        when[i] = following.get(order[i], len(order) + 1)
        following[order[i]] = i
    inside: dict[str, int] = {}
    heap: list[tuple[int, str]] = []
    misses, seen = 0, set()
    for i, key in enumerate(order):
        misses += key not in inside and key in seen
        seen.add(key)
        inside[key] = when[i]
        heapq.heappush(heap, (-when[i], key))
        while len(inside) > slots:  # the one that is read last goes, be it the new one
            at, old = heapq.heappop(heap)
            if inside.get(old) == -at:
                del inside[old]
    return misses
