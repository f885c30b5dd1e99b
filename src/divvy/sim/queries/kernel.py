"""The hot replay kernel: the loops compiled once per dispatch rule, and the call that runs them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType
from typing import Any, Final, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from divvy.planners.queries import divvy
from divvy.planners.queries.rule import Rule
from divvy.sim.queries import loops

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Load:
    """Queries to replay.

    Attributes:
        arrivals: Microseconds, ascending.
        batches: Items of each query.
        draws: A number per query for rules that sample.
    """

    arrivals: Ints
    batches: Ints
    draws: Ints


@dataclass(frozen=True, slots=True)
class Run:
    """What a replay did, by query; -1 where no slice could run it.

    Attributes:
        chosen: The slice.
        start: Microseconds.
        finish: Microseconds.
        complete: False if the replay ended early because a bucket had too many late queries.
    """

    chosen: Ints
    start: Ints
    finish: Ints
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many queries of each bucket may be late before a replay ends early.

    Attributes:
        bucket: Bucket of each batch size.
        late: By bucket.
    """

    bucket: Ints
    late: Ints


def compile_kept(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled, its machine code kept on disk where some place for it can be written."""
    try:
        kept: Callable[..., Any] = njit(function, cache=True, nogil=True)
    except RuntimeError:  # neither the tree nor a cache directory can be written: compile in every process
        kept = njit(function, nogil=True)
    return kept


def _compiled(loop: Callable[..., Any], names: dict[str, Any]) -> Callable[..., Any]:
    """Return a loop compiled with the given functions filled in, kept on disk between runs.

    The name under which the machine code is kept holds a checksum of the functions' byte code: numba itself
    looks only at the loop's file, and would run an old rule after its file changed.
    """
    plain = cast("FunctionType", loop)
    code = b"".join(repr((f.__code__.co_code, f.__code__.co_consts)).encode() for f in names.values())
    scope = dict(plain.__globals__)
    for name, function in names.items():  # the loop's parts find one another compiled; rules stay at home
        own = function.__module__ == plain.__module__
        scope[name] = njit(FunctionType(function.__code__, scope, name) if own else function, nogil=True)
    copy = FunctionType(plain.__code__, scope, plain.__name__)
    copy.__qualname__ = f"{plain.__name__}_{zlib.crc32(code):08x}"
    copy.__module__ = plain.__module__
    return compile_kept(copy)


#: The loops' own parts, compiled with them.
_EAGER_PARTS: Final = ("_pop", "_append")
_LATE_PARTS: Final = (
    *("_next_end", "_next_due", "_demote", "_take", "_join", "_rescue", "_leftover"),
    *("_append", "_note", "_forget"),
)


@lru_cache(maxsize=32)
def _loop(rule: Rule) -> Callable[..., Any]:
    if rule.choose is not None:
        parts = {name: getattr(loops, name) for name in _EAGER_PARTS}
        return _compiled(loops.eager, {**parts, "choose": rule.choose})
    parts = {name: getattr(loops, name) for name in _LATE_PARTS}
    return _compiled(loops.late, {**parts, "claim": divvy.claim})


def replay(
    rule: Rule,
    params: tuple[float, ...],
    load: Load,
    slo_us: int,
    service: Ints,
    price: Floats,
    allowance: Allowance | None = None,
) -> Run:
    """Replay queries on slices under a dispatch rule.

    Args:
        rule: The dispatch rule.
        params: Its parameters, in its order.
        load: The queries.
        slo_us: Objective from arrival to end, microseconds.
        service: Microseconds by slice (ascending size) and batch; negative where it does not fit.
        price: By slice, what a microsecond of it costs.
        allowance: Ends the replay early once too many queries are late; to the very end where None.
    """
    return run_loop(_loop(rule), rule, params, load, slo_us, service, price, allowance)


def run_loop(
    loop: Callable[..., Any],
    rule: Rule,
    params: tuple[float, ...],
    load: Load,
    slo_us: int,
    service: Ints,
    price: Floats,
    allowance: Allowance | None = None,
) -> Run:
    """Run one of the loops, compiled or not, on fresh scratch arrays."""
    n, slices, rows = load.arrivals.shape[0], service.shape[0], service.shape[1]
    out = np.empty((3, n), np.int64)
    numbers = np.array(params or (0.0,), np.float64)
    free_at, following = np.zeros(slices, np.int64), np.empty(n, np.int64)
    bucket = np.zeros(rows, np.int64) if allowance is None else allowance.bucket
    spare = np.array([n], np.int64) if allowance is None else allowance.late.copy()
    common = (load.arrivals, load.batches, slo_us)
    if rule.choose is not None:
        queues = np.full((3, slices), -1, np.int64)
        queues[0] = 0
        scratch = (free_at, queues, following)
        given = (service, price, numbers, load.draws, rule.counts)
        complete = loop(*common, *given, out, *scratch, bucket, spare)
        return Run(out[0], out[1], out[2], bool(complete))
    order = np.argsort(price, kind="stable")
    table, sorted_price = np.ascontiguousarray(service[order]), price[order]
    head, tail, kinds = (np.full(rows, -1, np.int64) for _ in range(3))
    complete = loop(
        *(*common, table, sorted_price, numbers, *costs(table, sorted_price, slo_us), out),
        *(free_at, head, tail, following, kinds, bucket, spare),
    )
    if complete:
        served = out[0] >= 0
        out[0, served] = order[out[0, served]]
    return Run(out[0], out[1], out[2], bool(complete))


_DEAR: Final = 1e300


def costs(service: Ints, price: Floats, slo_us: int) -> tuple[Floats, Ints]:
    """Return by batch the least price x time of a slice that could meet the objective, and the least time.

    Where no slice meets the objective, the least price x time of any slice; the time is -1 where none fits.
    """
    fits = service >= 0
    cost = np.where(fits, service * price[:, None], _DEAR)
    meets = np.where(fits & (service <= slo_us), cost, _DEAR).min(axis=0)
    cheapest = np.where(meets < _DEAR, meets, cost.min(axis=0))
    far = np.iinfo(np.int64).max
    fastest = np.where(fits, service, far).min(axis=0)
    return cheapest, np.where(fastest == far, -1, fastest)
