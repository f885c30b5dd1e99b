"""The dispatch of a live router for one model: events go in with their time, orders come out; no I/O.

Rules that bind on arrival decide through a `Book`; the house's rule binds late, as in the replay: queries
wait by batch size, and a slice that is idle takes the one with the least slack that is worth its price there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from divvy.perf.latency import INFEASIBLE, LatencyProfile
from divvy.planners.queries.book import Book
from divvy.planners.queries.rule import Rule

UP, DRAINING, DOWN, HELD = "up", "draining", "down", "held"
_DRAWS: Final = 1 << 40
_STEP: Final = 0x9E3779B97F4A7C15
#: How fast the margin follows, how many mean deviations it holds, and its largest share of an objective.
_FOLLOW: Final = 0.05
_DEVIATIONS: Final = 3.0
_MOST_MARGIN: Final = 0.2


class Margin:
    """How much longer runs take than estimated: mean and mean deviation, as TCP keeps its timer.

    A rule that fills an objective to the last microsecond is late by whatever the network and timers add.
    In a replay nothing is added, and the margin is 0.
    """

    def __init__(self) -> None:
        self._mean = self._deviation = 0.0

    def learn(self, over_us: int) -> None:
        """Take in how much longer a run took than estimated; less than nothing counts as nothing."""
        error = max(over_us, 0) - self._mean
        self._mean += _FOLLOW * error
        self._deviation += _FOLLOW * (abs(error) - self._deviation)

    def within(self, slo_us: int) -> int:
        """Return what is left of an objective for the plan."""
        return slo_us - round(min(self._mean + _DEVIATIONS * self._deviation, _MOST_MARGIN * slo_us))


@dataclass(frozen=True, slots=True)
class Slot:
    """A slice as declared: its compute slices, and what a microsecond of it costs (0: its compute slices)."""

    gpcs: int
    price: float = 0.0


@dataclass(eq=False, slots=True)
class Query:
    """A query while it is in the router.

    Attributes:
        batch: Items.
        arrived_us: When it came.
        slo_us: Objective from then.
        avoid: Slice that has failed it.
        tries: How often it was sent.
        wait_us: How long it waited for the slice that it was sent to last.
        estimate_us: How long it was expected to take there.
    """

    batch: int
    arrived_us: int
    slo_us: int
    avoid: str = ""
    tries: int = 0
    wait_us: int = 0
    estimate_us: int = 0


@dataclass(eq=False, slots=True)
class Post:
    """A slice at work.

    Attributes:
        slot: As declared.
        state: ``up``, ``draining``, ``down`` or ``held``.
        running: What it runs.
        since_us: When that began.
        given: What it was given besides, by a rule that binds on arrival.
        served: Queries that ended well.
        items: Items in them.
        failed: Queries that did not.
        busy_us: Time at work.
    """

    slot: Slot
    state: str = UP
    running: Query | None = None
    since_us: int = 0
    given: deque[Query] = field(default_factory=deque)
    served: int = 0
    items: int = 0
    failed: int = 0
    busy_us: int = 0

    @property
    def idle(self) -> bool:
        """Return whether it could take a query now."""
        return self.state == UP and self.running is None

    @property
    def price(self) -> float:
        """Return what a microsecond costs."""
        return self.slot.price or float(self.slot.gpcs)


#: Send this query to that slice.
Order = tuple[str, Query]


class Desk:
    """Decides which slice answers each query.

    Args:
        profile: Latencies of the model.
        largest: Largest batch.
        rule: The dispatch rule.
        params: Its parameters.
    """

    def __init__(self, profile: LatencyProfile, largest: int, rule: Rule, params: Sequence[float]) -> None:
        self.book = Book(profile, largest)
        self.largest, self.sizes = largest, tuple(profile.sizes)
        self._rule, self._params = rule, tuple(params)
        self._numbers = dict(zip((name for name, _ in rule.params), self._params, strict=False))
        self.posts: dict[str, Post] = {}
        self._waiting: dict[int, deque[Query]] = {}
        self._late: deque[Query] = deque()
        self._drawn = 0
        self.margin = Margin()

    @property
    def waiting(self) -> int:
        """Return how many queries wait."""
        own = sum(len(post.given) for post in self.posts.values())
        return own + len(self._late) + sum(len(queue) for queue in self._waiting.values())

    def declare(self, slots: Mapping[str, Slot], now: int) -> list[Order]:
        """Know these slices: new ones are up, those that are left out drain and then go."""
        for name, post in list(self.posts.items()):
            if name not in slots:
                post.state = DRAINING
        for name, slot in slots.items():
            known = self.posts.get(name)
            if known is None or (known.running is None and known.slot != slot):
                self.posts[name] = Post(slot, since_us=now)
            elif known.state == DRAINING:
                known.state = UP
        return self._moved(now)

    def eject(self, name: str, now: int) -> list[Order]:
        """Send nothing more to a slice that does not answer."""
        post = self.posts.get(name)
        if post is not None and post.state == UP:
            post.state = DOWN
        return self._moved(now)

    def hold(self, name: str, now: int) -> list[Order]:
        """Send nothing more to a slice, though it answers, until it is admitted; what it runs ends."""
        post = self.posts.get(name)
        if post is not None and post.state in {UP, DOWN}:
            post.state = HELD
        return self._moved(now)

    def admit(self, name: str, now: int) -> list[Order]:
        """Send queries to a slice again."""
        post = self.posts.get(name)
        if post is not None and post.state in {DOWN, HELD}:
            post.state = UP
        return self._moved(now)

    def _moved(self, now: int) -> list[Order]:
        """Forget drained slices, bind again what others were given, and go on."""
        for name, post in list(self.posts.items()):
            if post.state == DRAINING and post.running is None:
                del self.posts[name]
        homeless: list[Query] = []
        if self._rule.choose is not None:  # what found no slice to be bound to may find one now
            homeless += self._late
            self._late.clear()
        for post in self.posts.values():
            if post.state != UP:
                homeless += post.given
                post.given.clear()
        self.book.keep({name: p.slot.gpcs for name, p in self.posts.items() if p.state == UP})
        orders = []
        for query in homeless:
            orders += self.arrive(query, now)
        return orders + self._serve(now)

    def runs_somewhere(self, batch: int) -> bool:
        """Return whether some slice that is up can run a batch."""
        return any(post.state == UP and self._time(post, batch) != INFEASIBLE for post in self.posts.values())

    def late_by(self, query: Query, now: int) -> int:
        """Return by how much a query that comes now would miss its objective, microseconds; 0 for in time.

        What waits in common is taken to be shared equally by the slices that are up.
        """
        up = [post for post in self.posts.values() if post.state == UP]
        common = sum(self._fastest(batch) * len(queue) for batch, queue in self._waiting.items() if queue)
        ends = [
            self._held_us(post, now) + time
            for post in up
            if (time := self._time(post, query.batch)) != INFEASIBLE
        ]
        return max(min(ends) + common // len(up) - query.slo_us, 0) if ends else 0

    def busy_us(self, name: str, now: int) -> int:
        """Return how long a slice is busy with what it has (T_wait), microseconds."""
        return self._held_us(self.posts[name], now)

    def _held_us(self, post: Post, now: int) -> int:
        """Return how long a slice is busy with what it has."""
        given = sum(max(self._time(post, query.batch), 0) for query in post.given)
        running = post.running
        return given if running is None else given + max(post.since_us + running.estimate_us - now, 0)

    def _time(self, post: Post, batch: int) -> int:
        if batch > self.largest:
            return INFEASIBLE
        return self.book.estimate_us(post.slot.gpcs, batch)

    def arrive(self, query: Query, now: int) -> list[Order]:
        """Take a query in."""
        if self._rule.choose is None:
            self._waiting.setdefault(query.batch, deque()).append(query)
            return self._serve(now)
        self._drawn = (self._drawn + _STEP) % _DRAWS
        left = max(query.arrived_us + self.margin.within(query.slo_us) - now, 0)
        ranked = self.book.rank(self._rule, self._params, query.batch, now, left, self._drawn)
        names = [str(name) for name in ranked if name != query.avoid] or [str(name) for name in ranked]
        if not names:  # nobody can run it now: it waits for a slice that can
            self._late.append(query)
            return []
        self.book.give(id(query), names[0], query.batch, now)
        self.posts[names[0]].given.append(query)
        return self._serve(now)

    def end(self, name: str, query: Query, now: int, *, good: bool) -> list[Order]:
        """Note that a slice has ended a query, well or not."""
        self.book.take(id(query), now, done=good)
        post = self.posts.get(name)
        if post is None or post.running is not query:
            return []
        took = now - post.since_us
        post.running, post.since_us = None, now
        post.busy_us += took
        post.served += good
        post.failed += not good
        if good:
            self.margin.learn(took - query.estimate_us)
        post.items += query.batch if good else 0
        if good and self._rule.choose is None:
            self.book.learn(post.slot.gpcs, took / max(query.estimate_us, 1))
        if post.state == DRAINING:
            return self._moved(now)
        return self._serve(now)

    def withdraw(self, query: Query, now: int) -> bool:
        """Forget a query that waits; return whether it did."""
        for queue in (self._late, *self._waiting.values(), *(p.given for p in self.posts.values())):
            if query in queue:
                queue.remove(query)
                self.book.take(id(query), now, done=False)
                return True
        return False

    def _serve(self, now: int) -> list[Order]:
        """Give idle slices what they take."""
        if self._rule.choose is not None:
            return [self._send(n, p, p.given.popleft(), now) for n, p in self._idle() if p.given]
        self._demote(now)
        orders = []
        for name, post in self._idle():
            query = self._pick(post, now)
            if query is not None:
                orders.append(self._send(name, post, query, now))
        if not any(post.running is not None for post in self.posts.values()):
            orders += self._rest(now)
        return orders

    def _rest(self, now: int) -> list[Order]:
        """Give one query to the dearest slice that can: nothing runs, so no end would bring a better."""
        for name, post in reversed(list(self._idle())):
            query = self._any(post)
            if query is not None:
                return [self._send(name, post, query, now)]
        return []

    def _idle(self) -> Iterator[tuple[str, Post]]:
        """Yield idle slices, the cheapest first."""
        for name in sorted(self.posts, key=lambda name: (self.posts[name].price, name)):
            if self.posts[name].idle:
                yield name, self.posts[name]

    def _send(self, name: str, post: Post, query: Query, now: int) -> Order:
        post.running, post.since_us = query, now
        query.tries += 1
        query.wait_us = now - query.arrived_us
        query.estimate_us = self._time(post, query.batch)
        return name, query

    def _demote(self, now: int) -> None:
        """Move what is late whatever happens, small sizes first."""
        for batch in sorted(self._waiting):
            queue = self._waiting[batch]
            fastest = self._fastest(batch)
            while queue and now + fastest > queue[0].arrived_us + queue[0].slo_us:
                self._late.append(queue.popleft())

    def _pick(self, post: Post, now: int) -> Query | None:
        """Return what an idle slice takes by the house's rule; None to stay idle."""
        late = self._late[0] if self._late else None
        time = INFEASIBLE if late is None else self._time(post, late.batch)
        if late is not None and time != INFEASIBLE:
            spare = late.arrived_us + 2 * late.slo_us - now - time
            if 0 <= spare <= self._numbers.get("rescue", 0.0) * late.slo_us:
                return self._late.popleft()
        batch = self._claim(post, now)
        if batch is not None:
            return self._waiting[batch].popleft()
        if late is None or time == INFEASIBLE:
            return None
        second = late.arrived_us + 2 * late.slo_us
        hopeless = now + self._fastest(late.batch) > second
        return self._late.popleft() if hopeless or now + time <= second else None

    def _fastest(self, batch: int) -> int:
        """Return the least time of a batch on a slice that is up; 0 where none can run it."""
        times = [self._time(post, batch) for post in self.posts.values() if post.state == UP]
        return min((time for time in times if time != INFEASIBLE), default=0)

    def _claim(self, post: Post, now: int) -> int | None:
        """Return the size whose oldest query has the least slack among those worth their price here."""
        found: list[tuple[int, int]] = []
        for batch, queue in self._waiting.items():
            time = self._time(post, batch) if queue else INFEASIBLE
            if time == INFEASIBLE:
                continue
            query = queue[0]
            waited = now - query.arrived_us
            slo_us = self.margin.within(query.slo_us)
            slack = slo_us - waited - time
            cheapest = self._cheapest(batch, slo_us)
            dear = post.price * time - cheapest * self._numbers["near"]
            allowed = cheapest * self._numbers["growth"] * waited
            if slack >= 0 and (dear <= 0 or dear * max(slo_us - time, 1) <= allowed):
                found.append((slack, batch))
        return min(found)[1] if found else None

    def _cheapest(self, batch: int, slo_us: int) -> float:
        """Return the least price x time of a slice that could meet the objective, else of any."""
        costs = [
            (time > slo_us, post.price * time)
            for post in self.posts.values()
            if post.state == UP and (time := self._time(post, batch)) != INFEASIBLE
        ]
        return min(costs)[1] if costs else 0.0

    def _any(self, post: Post) -> Query | None:
        """Return a query that a slice can run, the smallest first."""
        for batch in sorted(self._waiting):
            if self._waiting[batch] and self._time(post, batch) != INFEASIBLE:
                return self._waiting[batch].popleft()
        if self._late and self._time(post, self._late[0].batch) != INFEASIBLE:
            return self._late.popleft()
        return None
