"""The search of live rates, the strict objective, the configurations of balancers: without any server."""

from __future__ import annotations

import numpy as np
import pytest

from divvy.adapters.balancers.config import Target, haproxy, nginx, weights
from divvy.cli.bench_serving_contenders import BALANCERS, DEFAULT, OURS, TUNED, Contender
from divvy.cli.bench_serving_rates import BEST, Rates, rate_rows, zero_row
from divvy.cli.bench_serving_search import climb
from divvy.cli.bench_serving_stage import Case, Stage
from divvy.errors import InputError
from divvy.sim.queries.kernel import Load
from divvy.sim.queries.strict import round_robin, within


@pytest.mark.parametrize("limit", [-40, -9, -2, -1, 0, 1, 2, 7, 30])
def test_the_search_finds_the_edge_from_wherever_it_begins(limit):
    asked = []
    assert climb(lambda index: asked.append(index) or index <= limit) == limit
    assert len(asked) == len(set(asked)) <= 16


def test_a_search_that_finds_nothing_ends():
    assert climb(lambda _: False) is None


def test_the_objective_is_p99_of_all_and_p95_of_every_bucket():
    batches = np.array([1] * 180 + [20] * 20)
    latency = np.full(200, 5)
    assert within(latency, batches, 10, ((1, 4), (17, 32)))
    latency[:2] = 11
    assert within(latency, batches, 10, ((1, 4), (17, 32)))
    latency[2] = 11
    assert not within(latency, batches, 10, ((1, 4), (17, 32))), "three of 200 are more than 1%"
    latency[:3] = 5
    latency[-2:] = 11
    assert not within(latency, batches, 10, ((1, 4), (17, 32))), "two of 20 are more than 5% of their bucket"


def test_round_robin_gives_every_slice_its_turn():
    load = Load(np.array([0, 0, 0, 0]), np.array([1, 1, 1, 2]), np.zeros(4, np.int64))
    run = round_robin(load, np.array([[-1, 10, 20], [-1, 30, -1]]))
    assert run.chosen.tolist() == [0, 1, 0, -1] and run.finish.tolist() == [10, 30, 20, -1]


TARGETS = (Target("slow", 1, 10.0), Target("fast", 2, 40.0))


def test_an_operator_tunes_haproxy_by_weights_one_query_a_server_and_the_fastest_first():
    assert weights(TARGETS) == [64, 256]
    plain, tuned = haproxy(9, TARGETS, "leastconn"), haproxy(9, TARGETS, "first", tuned=True)
    assert "weight" not in plain and "maxconn 1\n" not in plain
    assert "server fast 127.0.0.1:2 weight 256 maxconn 1" in tuned
    assert tuned.index("server fast") < tuned.index("server slow")
    assert "least_conn;" in nginx(9, TARGETS, "least_conn", "/x") and "least_conn" not in nginx(
        9, TARGETS, "round_robin", "/x"
    )
    with pytest.raises(InputError, match="roundrobin"):
        haproxy(9, TARGETS, "fair")
    with pytest.raises(InputError):
        nginx(9, (), "least_conn", "/x")


def test_each_contender_gets_the_layout_on_which_its_own_rule_serves_most():
    stage = Stage(Case("bert", 1, 1.0))
    free, equal = stage.deploy("jsq", equal=False), stage.deploy("jsq", equal=True)
    assert len(set(equal.choice.slices)) == 1
    assert free.expected_qps >= equal.expected_qps > 0
    assert stage.deploy("jsq", equal=True) is equal


def test_rows_tell_ratios_seed_by_seed_and_list_zeros_apart():
    def rates(kind, name, *by_seed):
        return Rates(Contender(name, kind, "jsq", lambda _: iter(()), ""), "1 x 7g", 1.0, by_seed)

    found = [
        rates(DEFAULT, "a", 10.0, 20.0),
        rates(DEFAULT, "b", 0.0, 0.0),
        rates(TUNED, "c", 0.0, 0.0),
        rates(OURS, "d", 20.0, 40.0),
    ]
    rows = list(rate_rows("case", BEST, found, ""))
    default, tuned = rows[-2:]
    assert default["value"] == 2.0 and default["met"] is True and default["n"] == 2
    assert tuned["value"] is None and "at zero" in tuned["note"]
    zero = zero_row({("case", BEST): found})
    assert zero["value"] == 2 and "b (case, own best layout)" in zero["note"]
    assert len({contender.name for contender in BALANCERS}) == len(BALANCERS)
