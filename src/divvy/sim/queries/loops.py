"""The two loops of the replay: queries bound on arrival, and queries that wait until a slice claims them.

Both are written in the part of Python that numba compiles, over arrays of integers in microseconds. The names
`choose` and `claim` are filled in per dispatch rule by `divvy.sim.queries.kernel`.
"""

from __future__ import annotations

from typing import Any, Final

from divvy.planners.queries.divvy import claim
from divvy.planners.queries.elsa import choose

FAR: Final = 1 << 62


def eager(
    arrivals: Any,
    batches: Any,
    slo: int,
    service: Any,
    price: Any,
    params: Any,
    draws: Any,
    counts: bool,  # noqa: FBT001 - numba takes no keywords
    out: Any,
    free_at: Any,
    queues: Any,
    following: Any,
    bucket: Any,
    spare: Any,
) -> bool:
    """Replay queries that are bound on arrival; each slice works off its own queue in order.

    Fills the rows of `out` (slice, start, finish) by query. Scratch: `free_at`; `queues` with the rows
    length, oldest and newest, by slice; `following` by query. `spare` says how many late queries each bucket
    may still have (`bucket` by batch): the replay ends, and returns False, when one has too many.
    """
    for q in range(arrivals.shape[0]):
        now, batch = arrivals[q], batches[q]
        if counts:
            _pop(now, out, queues, following)
        s = choose(now, now + slo, batch, free_at, queues[0], service, price, params, draws[q])
        out[0, q] = s
        if s < 0:
            out[1, q] = out[2, q] = -1
            continue
        begin = max(now, free_at[s])
        done = begin + service[s, batch]
        out[1, q], out[2, q] = begin, done
        free_at[s] = done
        if done - now > slo:
            spare[bucket[batch]] -= 1
            if spare[bucket[batch]] < 0:
                return False
        if counts:
            queues[0, s] += 1
            _append(s, q, queues[1], queues[2], following)
    return True


def _pop(now: int, out: Any, queues: Any, following: Any) -> None:
    """Take what has ended off the queues that are counted."""
    for s in range(queues.shape[1]):
        while queues[1, s] >= 0 and out[2, queues[1, s]] <= now:
            queues[1, s] = following[queues[1, s]]
            queues[0, s] -= 1


def late(  # noqa: C901, PLR0912 - one event loop; its parts are functions below
    arrivals: Any,
    batches: Any,
    slo: int,
    service: Any,
    price: Any,
    params: Any,
    cheapest: Any,
    fastest: Any,
    out: Any,
    free_at: Any,
    head: Any,
    tail: Any,
    following: Any,
    kinds: Any,
    bucket: Any,
    spare: Any,
) -> bool:
    """Replay queries that wait in one queue per batch size until an idle slice claims one.

    Row 0 of `head` and `tail` (no query has batch 0) is the list of those that are late whatever happens.
    Slices come cheapest first; `kinds` is scratch: the batch sizes that wait. Fills `out`, and ends early, as
    `eager` does.
    """
    n, waiting, arrived, now, count, due = arrivals.shape[0], 0, 0, 0, 0, FAR
    while arrived < n or waiting > 0:
        soon = _next_end(now, free_at) if waiting > 0 else FAR
        last = arrived >= n and soon == FAR  # nobody runs and nobody comes: all idle slices have refused
        if arrived < n and arrivals[arrived] <= soon:
            now = arrivals[arrived]
            while arrived < n and arrivals[arrived] == now:
                row = batches[arrived]
                if fastest[row] < 0:
                    out[0, arrived] = out[1, arrived] = out[2, arrived] = -1
                else:
                    if head[row] < 0:
                        count = _note(row, kinds, count)
                        due = min(due, now + slo - fastest[row])
                    _append(row, arrived, head, tail, following)
                    waiting += 1
                arrived += 1
        elif soon < FAR:
            now = soon
        if now > due:  # nothing is hopeless before: heads only get younger
            count = _demote(now, slo, arrivals, fastest, kinds, count, head, tail, following, bucket, spare)
            if count < 0:
                return False
            due = _next_due(slo, arrivals, fastest, kinds, count, head)
        for s in range(free_at.shape[0]):
            if free_at[s] > now:
                continue
            if waiting == 0:
                break
            row = _rescue(now, s, slo, arrivals, batches, head, service, params[3])
            if row < 0:
                row = claim(now, s, slo, arrivals, kinds, count, head, service, price, cheapest, params)
            if row < 0 and (head[0] >= 0 or last):
                row = _leftover(now, s, slo, arrivals, batches, kinds, count, head, service, fastest, last)
            if row < 0:
                continue
            group, total, left = _take(
                now, s, row, slo, arrivals, batches, kinds, count, head, following, service, params[2]
            )
            count = left
            free_at[s] = now + service[s, total]
            while group >= 0:
                out[0, group], out[1, group], out[2, group] = s, now, free_at[s]
                group = following[group]
                waiting -= 1
    return True


def _next_end(now: int, free_at: Any) -> int:
    """Return when the next busy slice falls idle."""
    soon = FAR
    for s in range(free_at.shape[0]):
        if now < free_at[s] < soon:
            soon = free_at[s]
    return soon


def _next_due(slo: int, arrivals: Any, fastest: Any, kinds: Any, count: int, head: Any) -> int:
    """Return the last moment at which no waiting query is hopeless."""
    due = FAR
    for i in range(count):
        due = min(due, arrivals[head[kinds[i]]] + slo - fastest[kinds[i]])
    return due


def _demote(
    now: int,
    slo: int,
    arrivals: Any,
    fastest: Any,
    kinds: Any,
    count: int,
    head: Any,
    tail: Any,
    following: Any,
    bucket: Any,
    spare: Any,
) -> int:
    """Move what is late whatever happens to the late list; return the sizes that wait, -1 to end early."""
    i = 0
    while i < count:
        row = kinds[i]
        while head[row] >= 0 and now + fastest[row] > arrivals[head[row]] + slo:
            q = head[row]
            head[row] = following[q]
            _append(0, q, head, tail, following)
            spare[bucket[row]] -= 1
            if spare[bucket[row]] < 0:
                return -1
        left = _forget(row, kinds, count, head)
        i += 1 - (count - left)
        count = left
    return count


def _take(
    now: int,
    s: int,
    row: int,
    slo: int,
    arrivals: Any,
    batches: Any,
    kinds: Any,
    count: int,
    head: Any,
    following: Any,
    service: Any,
    batching: float,
) -> tuple[int, int, int]:
    """Take the oldest query of a queue, and those worth running with it, off their queues.

    Returns:
        The first of the group (the others follow it), their items, and how many sizes still wait.
    """
    group = head[row]
    head[row] = following[group]
    following[group] = -1
    count = _forget(row, kinds, count, head)
    total, deadline = batches[group], arrivals[group] + slo
    while batching > 0 and row > 0:
        more = _join(now, s, total, deadline, slo, arrivals, kinds, count, head, service)
        if more < 0:
            break
        other = head[more]
        head[more] = following[other]
        following[other] = group
        group = other
        count = _forget(more, kinds, count, head)
        total += more
        deadline = min(deadline, arrivals[other] + slo)
    return group, total, count


def _append(row: int, q: int, head: Any, tail: Any, following: Any) -> None:
    """Put a query at the end of a queue."""
    following[q] = -1
    if head[row] < 0:
        head[row] = q
    else:
        following[tail[row]] = q
    tail[row] = q


def _note(row: int, kinds: Any, count: int) -> int:
    """Put a batch size on the ascending list of those that wait; return how many there are."""
    i = count
    while i > 0 and kinds[i - 1] > row:
        kinds[i] = kinds[i - 1]
        i -= 1
    kinds[i] = row
    return count + 1


def _forget(row: int, kinds: Any, count: int, head: Any) -> int:
    """Take a batch size off that list if its queue is empty; return how many are left."""
    if row == 0 or head[row] >= 0:
        return count
    gone = False
    for i in range(count):
        if gone:
            kinds[i - 1] = kinds[i]
        elif kinds[i] == row:
            gone = True
    return count - 1 if gone else count


def _rescue(
    now: int,
    s: int,
    slo: int,
    arrivals: Any,
    batches: Any,
    head: Any,
    service: Any,
    share: float,
) -> int:
    """Return 0 (the late list) if its oldest query must start now to be done within twice the objective.

    Now: in the last `share` of an objective in which it still can; else -1.
    """
    q = head[0]
    if q < 0 or share <= 0:
        return -1
    time = service[s, batches[q]]
    spare = arrivals[q] + 2 * slo - now - time
    return 0 if time >= 0 and 0 <= spare <= share * slo else -1


def _leftover(
    now: int,
    s: int,
    slo: int,
    arrivals: Any,
    batches: Any,
    kinds: Any,
    count: int,
    head: Any,
    service: Any,
    fastest: Any,
    last: bool,  # noqa: FBT001 - numba takes no keywords
) -> int:
    """Return which queue an otherwise idle slice serves: the late list (0), at the end any; -1 for none.

    A late query takes a slice on which it is done within twice its objective, once it is that late any slice.
    """
    q = head[0]
    if q >= 0:
        time = service[s, batches[q]]
        second = arrivals[q] + 2 * slo
        if time >= 0 and (now + time <= second or now + fastest[batches[q]] > second):
            return 0
    if last:
        best = -1
        for i in range(count):
            if service[s, kinds[i]] >= 0 and (best < 0 or kinds[i] < best):
                best = kinds[i]
        if best >= 0:
            return best
        if q >= 0 and service[s, batches[q]] >= 0:
            return 0
    return -1


def _join(
    now: int,
    s: int,
    total: int,
    deadline: int,
    slo: int,
    arrivals: Any,
    kinds: Any,
    count: int,
    head: Any,
    service: Any,
) -> int:
    """Return the batch size whose oldest query is worth running in the same batch, or -1.

    Worth it: the larger batch takes less time than the two one after the other, and all are in time.
    """
    best, least = -1, 0
    for i in range(count):
        row = kinds[i]
        q = head[row]
        if q < 0 or total + row >= service.shape[1]:
            continue
        time = service[s, total + row]
        if time < 0 or now + time > deadline or now + time > arrivals[q] + slo:
            continue
        if time >= service[s, total] + service[s, row]:
            continue
        slack = arrivals[q] + slo
        if best < 0 or slack < least or (slack == least and row < best):
            best, least = row, slack
    return best
