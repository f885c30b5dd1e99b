"""The desk under anything: each query is answered once, sent twice at most, and a slice runs one at a time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divvy.perf.latency import Cell, LatencyProfile
from divvy.planners.queries.desk import DOWN, HELD, Desk, Query, Slot
from divvy.planners.queries.registry import RULES, find_rule

PROFILE = LatencyProfile(
    "m", tuple(Cell(size, batch, 1, 12_000 * batch // size) for size in (1, 3, 7) for batch in (1, 2, 4))
)
SLOTS = {"a": Slot(1), "b": Slot(3), "c": Slot(7), "d": Slot(1)}
NAMES = tuple(SLOTS)

STEP = st.tuples(
    st.sampled_from(("arrive", "arrive", "end", "end", "fail", "leave", "die", "admit", "hold", "declare")),
    st.integers(0, 7),
    st.integers(0, 30_000),
)


class Shop:
    """A desk with whoever drives it, who does as the live router does and counts."""

    def __init__(self, rule):
        found, params = find_rule(rule)
        self.desk, self.now = Desk(PROFILE, 4, found, params), 0
        self.running, self.open, self.answers, self.sent, self.queries = {}, {}, {}, {}, []
        self.go(self.desk.declare(SLOTS, 0))

    def go(self, orders):
        for name, query in orders:
            key = id(query)
            assert key in self.open, "a query that was answered, or has left, is not sent"
            assert name not in self.running, "a slice runs one query at a time"
            assert key not in {id(one) for one in self.running.values()}, "a query runs in one place"
            assert self.desk.posts[name].running is query
            self.running[name] = query
            self.sent[key] = self.sent.get(key, 0) + 1
            assert self.sent[key] == query.tries <= 2

    def answer(self, query):
        del self.open[id(query)]
        self.answers[id(query)] = self.answers.get(id(query), 0) + 1

    def arrive(self, number):
        query = Query((1, 2, 4)[number % 3], self.now, 40_000)
        self.queries.append(query)
        self.open[id(query)] = query
        if not self.desk.runs_somewhere(query.batch):
            self.answer(query)  # refused
            return
        self.go(self.desk.arrive(query, self.now))

    def busy(self, number):
        return sorted(self.running)[number % len(self.running)] if self.running else None

    def end(self, number):
        name = self.busy(number)
        if name is not None:
            query = self.running.pop(name)
            self.answer(query)
            self.go(self.desk.end(name, query, self.now, good=True))

    def fail(self, number):
        name = self.busy(number)
        if name is None:
            return
        query = self.running.pop(name)
        orders = self.desk.end(name, query, self.now, good=False)
        orders += self.desk.eject(name, self.now)
        query.avoid = name
        if query.tries < 2 and self.desk.runs_somewhere(query.batch):
            self.go([*orders, *self.desk.arrive(query, self.now)])
        else:
            self.answer(query)
            self.go(orders)

    def leave(self, number):
        if not self.open:
            return
        query = list(self.open.values())[number % len(self.open)]
        self.answer(query)
        place = next((name for name, one in self.running.items() if one is query), None)
        assert self.desk.withdraw(query, self.now) == (place is None), "it waits, or it runs"
        if place is not None:
            del self.running[place]
            self.go(self.desk.end(place, query, self.now, good=False))

    def die(self, number):
        self.go(self.desk.eject(NAMES[number % 4], self.now))

    def admit(self, number):
        self.go(self.desk.admit(NAMES[number % 4], self.now))

    def hold(self, number):
        self.go(self.desk.hold(NAMES[number % 4], self.now))

    def declare(self, number):
        kept = {name: slot for place, (name, slot) in enumerate(SLOTS.items()) if number >> place & 1}
        self.go(self.desk.declare(kept, self.now))

    def check(self):
        running = {name for name, post in self.desk.posts.items() if post.running is not None}
        assert running == set(self.running)
        assert self.desk.waiting + len(running) == len(self.open), "what is not answered waits or runs"

    def finish(self):
        """Bring everything back, and let all end."""
        self.go(self.desk.declare(SLOTS, self.now))
        for name in NAMES:
            self.go(self.desk.admit(name, self.now))
        while self.running:
            self.now += 5_000
            self.end(0)
            self.check()
        assert {post.state for post in self.desk.posts.values()}.isdisjoint({DOWN, HELD})
        assert not self.desk.waiting, "nothing waits while slices are idle and nothing comes"
        assert all(self.answers[id(query)] == 1 for query in self.queries)


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEP, max_size=60))
def test_each_query_is_answered_once_and_sent_twice_at_most(rule, steps):
    shop = Shop(rule)
    for verb, number, passed in steps:
        shop.now += passed
        getattr(shop, verb)(number)
        shop.check()
    shop.finish()
