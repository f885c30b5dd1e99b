"""Pairs of a prefill and a decode place: who is chosen, why, and what the desk remembers."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.adapters.rails.fabric import read_fabric, topology_of, with_cut
from divvy.errors import DivvyError, InputError, NotFoundError, UnavailableError
from divvy.fleet.topology.read import build
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.matching import Ask, Place, pair_document, read_ask, settings_of, tried_pairs
from divvy.planners.transfers.plan import Transfer
from divvy.planners.transfers.roads import Roads, roads
from divvy.service.pairing import PairingDesk
from divvy.service.requests import PairRequest
from divvy.service.schemas.pairing import Pair

FABRIC = read_fabric("r", 4, 2, "400mbit,100mbit/400mbit,100mbit/200mbit,100mbit/400mbit,100mbit")
WAYS = roads(topology_of(FABRIC))
MIB = 1 << 20


def ask(**more: Any) -> dict[str, Any]:
    return {"prefill": ["h0"], "decode": ["h2", "h3"], "kv_bytes": 8 * MIB} | more


def best(body: dict[str, Any], ways: Roads = WAYS, moving: tuple[Transfer, ...] = ()) -> dict[str, Any]:
    asked = read_ask(ways, body)
    return pair_document(ways, asked, tried_pairs(ways, Finder(ways), asked, moving))


def test_the_faster_way_wins_and_both_rails_are_used_by_their_rates() -> None:
    found = best(ask())
    assert found["pair"] == {"prefill": "h0", "decode": "h3"}
    assert [row["share"] for row in found["route"]] == pytest.approx([0.8, 0.2], abs=0.03)
    assert found["predicted_seconds"] == pytest.approx(8 * MIB * 8 / 500e6, rel=0.03)
    assert "carry 0.0375 GB/s, not 0.0625" in found["others"][0]["why"]


def test_what_the_decode_place_holds_is_not_sent() -> None:
    found = best(ask(hash_ids=["a", "b", "c", "d"], cached={"h2": ["a", "b", "c"], "h3": ["b", "c", "d"]}))
    assert found["pair"]["decode"] == "h2"
    assert (found["sent_bytes"], found["cached_blocks"]) == (2 * MIB, 3)
    assert "3 of 4 blocks" in " ".join(found["explanation"])


def test_a_whole_prefix_needs_no_transfer() -> None:
    found = best(ask(hash_ids=[1, 2], cached={"h2": [1, 2]}))
    assert found["pair"]["decode"] == "h2"
    assert (found["predicted_seconds"], found["route"], found["sent_bytes"]) == (0.0, [], 0)


def test_a_place_that_is_busy_counts_from_when_it_is_free() -> None:
    busy = ask(decode=["h2", {"place": "h3", "free_seconds": 5.0}])
    assert best(busy)["pair"]["decode"] == "h2"
    late = ask(prefill=[{"place": "h1", "free_seconds": 0.5}, "h0"])
    assert best(late)["pair"]["prefill"] == "h0"


def test_what_is_on_the_way_makes_a_place_later() -> None:
    moving = (Transfer("x", "h1", "h3", 64 * MIB),)
    assert best(ask(), moving=moving)["pair"]["decode"] == "h2"


def test_a_deadline_is_said_to_be_met_or_missed() -> None:
    assert best(ask(deadline_seconds=0.2))["deadline_met"] is True
    missed = best(ask(deadline_seconds=0.01))
    assert missed["deadline_met"] is False
    assert "missed by" in missed["explanation"][-1]


def test_of_equal_pairs_the_earlier_candidate_wins() -> None:
    found = best(ask(prefill=["h1", "h0"], decode=["h3"]))
    assert found["pair"]["prefill"] == "h1"
    assert found["others"][0]["why"].startswith("as fast")


def test_a_place_without_a_route_comes_last_and_none_at_all_is_an_error() -> None:
    lost = with_cut(with_cut(FABRIC, 3, 0, cut=True), 3, 1, cut=True)
    ways = roads(topology_of(lost))
    found = best(ask(), ways)
    assert found["pair"]["decode"] == "h2"
    assert found["others"][0]["predicted_seconds"] is None
    with pytest.raises(InputError, match="no pair has a route"):
        best(ask(decode=["h3"]), ways)


def test_every_unknown_place_is_named() -> None:
    with pytest.raises(InputError) as caught:
        best(ask(prefill=["h0", "x"], decode=["y"]))
    assert [f.path for f in caught.value.faults] == ["prefill[1]", "decode[0]"]


def test_too_many_pairs_are_refused() -> None:
    many = tuple(Place("h0") for _ in range(100))
    with pytest.raises(InputError, match="10000 pairs"):
        tried_pairs(WAYS, Finder(WAYS), Ask(many, many, 1))


def test_ucx_is_given_the_fast_rail_alone_and_both_where_they_are_equal() -> None:
    asked = read_ask(WAYS, ask())
    found = settings_of(WAYS, tried_pairs(WAYS, Finder(WAYS), asked)[0])
    assert found["nixl_ucx"]["decode"]["UCX_NET_DEVICES"] == "e0"
    assert found["mooncake"]["prefill"] == {"nic_priority_matrix": {"cpu:0": [["e0", "e1"], []]}}
    even = roads(topology_of(read_fabric("r", 4, 2, "1gbit")))
    found = settings_of(even, tried_pairs(even, Finder(even), read_ask(even, ask()))[0])
    assert found["nixl_ucx"]["prefill"]["UCX_NET_DEVICES"].split(",") == ["e0", "e1"]
    assert found["nixl_ucx"]["prefill"]["UCX_MAX_RNDV_RAILS"] == "2"


def test_gpus_and_verbs_devices_are_named_as_the_stacks_name_them() -> None:
    matrix = """\
        GPU0    GPU1    mlx5_0  mlx5_1  CPU Affinity    NUMA Affinity
GPU0     X      SYS     PIX     SYS     0-7     0
GPU1    SYS      X      SYS     PIX     8-15    1
mlx5_0  PIX     SYS      X      SYS
mlx5_1  SYS     PIX     SYS      X
"""
    ways = roads(build([("m.txt", matrix)]))
    asked = read_ask(ways, {"prefill": ["GPU0"], "decode": ["GPU1"], "kv_bytes": MIB})
    tried = tried_pairs(ways, Finder(ways), asked)[0]
    found = settings_of(ways, tried)
    matrix_of = found["mooncake"]["decode"]["nic_priority_matrix"]
    assert list(matrix_of) == ["cuda:1"]
    devices = found["nixl_ucx"]["prefill"]["UCX_NET_DEVICES"]
    assert devices == "all" or (devices.startswith("mlx5_") and devices.endswith(":1"))


class Desk:
    """A desk with a clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.desk = PairingDesk(lambda: WAYS, lambda: self.now)

    def pair(self, **more: Any) -> dict[str, Any]:
        document = self.desk.pair(PairRequest.model_validate(ask(**more)).model_dump())
        Pair.model_validate(document)
        return document


def test_the_desk_spreads_what_comes_at_once_and_forgets_what_is_over() -> None:
    place = Desk()
    first, second = place.pair(decode=["h1", "h3"]), place.pair(prefill=["h2"], decode=["h1", "h3"])
    assert [d["pair"]["decode"] for d in (first, second)] == ["h1", "h3"]
    assert (first["moving"], second["moving"]) == (0, 1)
    place.now += 10
    assert place.pair()["moving"] == 0


def test_a_pair_that_is_over_early_is_forgotten_once() -> None:
    place = Desk()
    name = place.pair()["id"]
    place.desk.done(name)
    assert place.pair(reserve=False)["moving"] == 0
    assert place.pair()["moving"] == 0
    with pytest.raises(NotFoundError):
        place.desk.done(name)


def test_bytes_on_the_way_go_down_with_time() -> None:
    place = Desk()
    first = place.pair(decode=["h3"])
    place.now += first["predicted_seconds"] / 2
    assert place.pair(decode=["h3"])["predicted_seconds"] == pytest.approx(
        first["predicted_seconds"] * 1.5, rel=0.1
    )


def test_without_a_topology_the_desk_says_what_to_do() -> None:
    with pytest.raises(UnavailableError, match="no topology") as caught:
        PairingDesk(None).pair(ask())
    assert "--topology" in caught.value.faults[0].fix


def test_changed_roads_forget_what_was_on_the_way() -> None:
    other = roads(topology_of(FABRIC))
    given = [WAYS, other]
    desk = PairingDesk(lambda: given[0], lambda: 1.0)
    desk.pair(ask())
    given.pop(0)
    assert desk.pair(ask())["moving"] == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"prefill": []},
        {"kv_bytes": 0},
        {"kv_bytes": 1 << 61},
        {"kv_bytes": 1.5},
        {"kv_bytes": "8MB"},
        {"deadline_seconds": -1},
        {"deadline_seconds": float("nan")},
        {"descriptors": 0},
        {"decode": [{"place": "h2", "free_seconds": float("inf")}]},
        {"cached": {"h2": "a"}},
        {"more": 1},
    ],
)
def test_what_cannot_be_asked_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        PairRequest.model_validate(ask(**wrong))


def test_faults_of_the_planner_reach_the_caller() -> None:
    with pytest.raises(DivvyError):
        Desk().pair(prefill=["nowhere"])
