"""The plain twin of the replay kernel: the same rules told with queues and events, slow and easy to read."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from divvy.planners.queries.rule import Rule
from divvy.sim.queries.kernel import Floats, Ints, Load, Run, costs


@dataclass(slots=True)
class _Server:
    """A slice: what it runs until when, and what it was given besides."""

    until: int = 0
    queue: deque[int] = field(default_factory=deque)
    running: int = -1


def replay_plainly(
    rule: Rule, params: tuple[float, ...], load: Load, slo_us: int, service: Ints, price: Floats
) -> Run:
    """Replay queries as `divvy.sim.queries.kernel.replay` does, event by event."""
    numbers = np.array(params or (0.0,), np.float64)
    if rule.choose is not None:
        return _eager(rule, numbers, load, slo_us, service, price)
    return _Late(numbers, load, slo_us, service, price).run()


def _eager(rule: Rule, params: Floats, load: Load, slo: int, service: Ints, price: Floats) -> Run:
    """Bind each query on arrival; a slice runs what it was given in order."""
    assert rule.choose is not None  # noqa: S101 - the caller has looked
    n = load.arrivals.shape[0]
    chosen, start, finish = (np.full(n, -1, np.int64) for _ in range(3))
    servers = [_Server() for _ in range(service.shape[0])]
    ends: list[tuple[int, int]] = []

    def begin(s: int, now: int) -> None:
        server = servers[s]
        server.running = server.queue.popleft()
        q = server.running
        start[q] = now
        finish[q] = server.until = now + int(service[s, load.batches[q]])
        heapq.heappush(ends, (server.until, s))

    def advance(now: int | None) -> None:
        while ends and (now is None or ends[0][0] <= now):
            time, s = heapq.heappop(ends)
            servers[s].running = -1
            if servers[s].queue:
                begin(s, time)

    for q, (now, batch) in enumerate(zip(load.arrivals.tolist(), load.batches.tolist(), strict=True)):
        advance(now)
        free_at = np.array(
            [
                server.until + sum(int(service[s, load.batches[other]]) for other in server.queue)
                for s, server in enumerate(servers)
            ]
        )
        queued = np.array([len(server.queue) + (server.running >= 0) for server in servers])
        s = rule.choose(now, now + slo, batch, free_at, queued, service, price, params, int(load.draws[q]))
        if s < 0:
            continue
        chosen[q] = s
        servers[s].queue.append(q)
        if servers[s].running < 0:
            begin(s, now)
    advance(None)
    return Run(chosen, start, finish)


class _Late:
    """Queries wait by batch size; idle slices claim, cheapest first, at every arrival and every end."""

    def __init__(self, params: Floats, load: Load, slo: int, service: Ints, price: Floats) -> None:
        self.near, self.growth, self.batching, self.rescue = (float(p) for p in params)
        self.load, self.slo, self.service, self.price = load, slo, service, price
        self.cheapest, self.fastest = costs(service, price, slo)
        n = load.arrivals.shape[0]
        self.chosen, self.start, self.finish = (np.full(n, -1, np.int64) for _ in range(3))
        self.waiting: dict[int, deque[int]] = {}
        self.late: deque[int] = deque()
        self.until = [0] * service.shape[0]
        self.order = [int(s) for s in np.argsort(price, kind="stable")]

    def run(self) -> Run:
        """Go from event to event until nothing waits."""
        arrivals = self.load.arrivals.tolist()
        arrived, now = 0, 0
        while arrived < len(arrivals) or self._count():
            ends = [t for t in self.until if t > now] if self._count() else []
            coming = arrivals[arrived] if arrived < len(arrivals) else None
            if coming is not None and (not ends or coming <= min(ends)):
                now = coming
                while arrived < len(arrivals) and arrivals[arrived] == now:
                    if self.fastest[self.load.batches[arrived]] >= 0:
                        self.waiting.setdefault(int(self.load.batches[arrived]), deque()).append(arrived)
                    arrived += 1
            elif ends:
                now = min(ends)
            self._demote(now)
            self._serve(now, over=coming is None and not ends)
        return Run(self.chosen, self.start, self.finish)

    def _count(self) -> int:
        return len(self.late) + sum(len(queue) for queue in self.waiting.values())

    def _demote(self, now: int) -> None:
        """Move what is late whatever happens, size by size, small sizes first."""
        self.late.extend(
            q
            for batch, queue in sorted(self.waiting.items())
            for q in [
                queue.popleft()
                for _ in range(
                    sum(now + self.fastest[batch] > self.load.arrivals[q] + self.slo for q in queue)
                )
            ]
        )

    def _serve(self, now: int, *, over: bool) -> None:
        for s in self.order:
            if self.until[s] > now or not self._count():
                continue
            group = self._pick(now, s, over=over)
            if not group:
                continue
            total = sum(int(self.load.batches[q]) for q in group)
            for q in group:
                self.chosen[q], self.start[q] = s, now
                self.finish[q] = self.until[s] = now + int(self.service[s, total])

    def _pick(self, now: int, s: int, *, over: bool) -> list[int]:
        """Return what a slice runs next; nothing to stay idle."""
        if self._rescues(now, s):
            return [self.late.popleft()]
        batch = self._claim(now, s)
        if batch is not None:
            return self._join(now, s, self.waiting[batch].popleft())
        if self.late:
            time = int(self.service[s, self.load.batches[self.late[0]]])
            second = int(self.load.arrivals[self.late[0]]) + 2 * self.slo
            too_late = now + int(self.fastest[self.load.batches[self.late[0]]]) > second
            if time >= 0 and (now + time <= second or too_late):
                return [self.late.popleft()]
        if over:
            able = [b for b, queue in self.waiting.items() if queue and self.service[s, b] >= 0]
            if able:
                return self._join(now, s, self.waiting[min(able)].popleft())
            if self.late and self.service[s, self.load.batches[self.late[0]]] >= 0:
                return [self.late.popleft()]
        return []

    def _rescues(self, now: int, s: int) -> bool:
        if not self.late or self.rescue <= 0:
            return False
        time = int(self.service[s, self.load.batches[self.late[0]]])
        spare = int(self.load.arrivals[self.late[0]]) + 2 * self.slo - now - time
        return time >= 0 and 0 <= spare <= self.rescue * self.slo

    def _claim(self, now: int, s: int) -> int | None:
        """Return the batch size whose oldest query has the least slack among those worth their price here."""
        found: list[tuple[int, int]] = []
        for batch, queue in self.waiting.items():
            time = int(self.service[s, batch])
            if not queue or time < 0:
                continue
            waited = now - int(self.load.arrivals[queue[0]])
            slack = self.slo - waited - time
            dear = float(self.price[s]) * time - float(self.cheapest[batch]) * self.near
            allowed = float(self.cheapest[batch]) * self.growth * waited
            if slack >= 0 and (dear <= 0 or dear * max(self.slo - time, 1) <= allowed):
                found.append((slack, batch))
        return min(found)[1] if found else None

    def _join(self, now: int, s: int, first: int) -> list[int]:
        """Return the first query with those that are worth running in the same batch, and in time."""
        group, total = [first], int(self.load.batches[first])
        deadline = int(self.load.arrivals[first]) + self.slo
        while self.batching > 0:
            found: list[tuple[int, int]] = []
            for batch, queue in self.waiting.items():
                if not queue or total + batch >= self.service.shape[1]:
                    continue
                time, due = int(self.service[s, total + batch]), int(self.load.arrivals[queue[0]]) + self.slo
                worth = time < self.service[s, total] + self.service[s, batch]
                if time >= 0 and now + time <= min(deadline, due) and worth:
                    found.append((due, batch))
            if not found:
                break
            due, batch = min(found)
            group.append(self.waiting[batch].popleft())
            total += batch
            deadline = min(deadline, due)
        return group
