"""The book of a live dispatcher: it ranks as the replay decides, and learns what slices really take."""

from __future__ import annotations

import numpy as np
import pytest

from divvy.fleet.mig.skus import find_sku
from divvy.perf.fitted import fitted_profile
from divvy.perf.latency import INFEASIBLE, Cell, LatencyProfile
from divvy.perf.traffic import lognormal
from divvy.planners.queries.book import Book
from divvy.planners.queries.registry import RULES, find_rule
from divvy.planners.slices.base import Request
from divvy.sim.queries.arrivals import make_stream
from divvy.sim.queries.judge import service_table
from divvy.sim.queries.kernel import replay

SLOW = LatencyProfile(
    "toy",
    (
        Cell(1, 1, 1, 40_000),
        Cell(1, 8, 1, INFEASIBLE),
        Cell(7, 1, 1, 10_000),
        Cell(7, 8, 1, 30_000),
    ),
)
ELSA, PARAMS = find_rule("elsa")


def make_book():
    book = Book(SLOW, 8)
    book.keep({"small": 1, "large": 7})
    return book


def test_elsa_takes_the_smallest_with_slack_then_the_first_done():
    book = make_book()
    assert book.rank(ELSA, PARAMS, 1, 0, 50_000, 0) == ["small", "large"]
    book.give("a", "small", 1, 0)
    assert book.rank(ELSA, PARAMS, 1, 0, 50_000, 0)[0] == "large"
    assert book.rank(ELSA, PARAMS, 1, 35_000, 50_000, 0)[0] == "small"
    assert book.rank(ELSA, PARAMS, 8, 0, 50_000, 0) == ["large"], "what does not fit is no candidate"


def test_a_query_that_ends_or_moves_or_whose_slice_has_gone_leaves_the_book():
    book = make_book()
    book.give("a", "small", 1, 0)
    book.give("a", "large", 1, 0)
    assert book.where("a") == "large"
    assert book.rank(ELSA, PARAMS, 1, 0, 50_000, 0)[0] == "small"
    book.take("a", 9_000)
    book.take("a", 9_000)
    book.take("unknown", 9_000)
    assert book.where("a") is None
    book.give("b", "small", 1, 0)
    book.keep({"large": 7})
    assert book.rank(ELSA, PARAMS, 1, 0, 50_000, 0) == ["large"] and book.where("b") is None
    book.keep({})
    assert book.rank(ELSA, PARAMS, 1, 0, 50_000, 0) == []


def test_estimates_follow_what_is_seen():
    book, now = make_book(), 0
    for number in range(200):
        book.give(number, "large", 1, now)
        now += 20_000
        book.take(number, now)
    assert book.drift[7] == pytest.approx(2.0, rel=0.05) and 1 not in book.drift
    assert book.estimate_us(7, 1) == pytest.approx(20_000, rel=0.05)


def test_a_rule_that_binds_late_is_refused():
    with pytest.raises(ValueError, match="late"):
        make_book().rank(RULES["divvy"], (), 1, 0, 1, 0)


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.choose is not None])
def test_the_book_decides_as_the_replay_does(name):
    profile, slices = fitted_profile("resnet50"), (1, 1, 2, 3, 7)
    request = Request(find_sku("A100-80GB"), 2, profile, lognormal(4, 0.9, 32), 20_000)
    rule, params = find_rule(name)
    load = make_stream(request.batches, 400, 3).at(220.0)
    table = service_table(request, slices)
    run = replay(rule, params, load, request.slo_us, table, np.array(slices, float))
    book = Book(profile, 32)
    names = [f"{index}" for index in range(len(slices))]
    book.keep(dict(zip(names, slices, strict=True)))
    ends = sorted((int(end), query) for query, end in enumerate(run.finish))
    for query, (now, batch, draw) in enumerate(
        zip(load.arrivals.tolist(), load.batches.tolist(), load.draws.tolist(), strict=True)
    ):
        while ends and ends[0][0] <= now:
            book.take(ends[0][1], ends.pop(0)[0])
        ranked = book.rank(rule, params, batch, now, request.slo_us, draw)
        assert ranked[0] == names[int(run.chosen[query])], query
        book.give(query, ranked[0], batch, now)
