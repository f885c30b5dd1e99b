"""Measured costs override assumed ones, and say where they came from."""

from __future__ import annotations

import pytest

from divvy.errors import InputError
from divvy.fleet.topology.read import build
from divvy.perf.transfer import KINDS
from divvy.planners.transfers.calibrate import calibrated, costs_document, read_calibration
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.plan import Transfer
from divvy.planners.transfers.registry import PLANNERS
from divvy.sim.flows.compare import run

MATRIX = "\tGPU0\tGPU1\tNIC0\nGPU0\tX\tNV18\tPIX\nGPU1\tNV18\tX\tSYS\nNIC0\tPIX\tSYS\tX\n"
TOPO = build([("m", MATRIX)])
STARTUP, EACH, RATE = 40e-6, 5e-6, 380e9


def timed(size: int, pieces: int, kind: str = "nvlink") -> dict:
    seconds = STARTUP + (pieces - 1) * EACH + size / RATE
    return {
        "from": "GPU0",
        "to": "GPU1",
        "kind": kind,
        "bytes": size,
        "descriptors": pieces,
        "seconds": seconds,
    }


ROWS = [
    timed(size, pieces) for size in (4096, 10**6, 10**8, 10**9) for pieces in (1, 64, 1024) for _ in range(4)
]


def test_timed_transfers_give_startup_descriptors_and_the_rate_of_the_link():
    ways, unused = calibrated(TOPO, read_calibration("c.json", {"transfers": ROWS}))
    cost = ways.costs["nvlink"]
    assert cost.startup_s == pytest.approx(STARTUP, rel=0.2)
    assert cost.descriptor_s == pytest.approx(EACH, rel=0.02)
    assert cost.source == "measured: 48 timed transfers (c.json)"
    link = next(k for k in ways.topo.links if k.a == "GPU0" and k.kind == "nvlink")
    assert link.gb_per_s == pytest.approx(RATE / 1e9, rel=0.02)
    assert (link.source.word, link.source.where) == ("measured", "c.json")
    assert unused == 0
    assert set(costs_document(ways.costs)) == {"nvlink"}
    assert ways.costs["pcie-p2p"] is KINDS["pcie-p2p"]


def test_plans_use_them_whatever_the_planner():
    ways, _ = calibrated(TOPO, read_calibration("c.json", ROWS))
    for planner in ("divvy", "divvy-online", "topkv"):
        finder = Finder(ways)
        plan = PLANNERS[planner](ways, finder, [Transfer("t", "GPU0", "GPU1", 10**9)], 0)
        first = next(f for f in plan.flows if f.kind == "nvlink")
        assert first.start_s == pytest.approx(STARTUP, rel=0.2)
        assert finder.between("GPU0", "GPU1")[0].cost.source.startswith("measured")
    before = calibrated(TOPO, read_calibration("c", {"kinds": {"tcp": {"startup_s": 1e-3}}}))[0]
    slow, fast = (
        run(w, Finder(w), [Transfer("t", "GPU0", "GPU1", 10**9)], "divvy")[1].makespan_s
        for w in (ways, before)
    )
    assert slow > fast * 1.1


def test_given_numbers_win_and_few_transfers_change_no_link():
    document = {"transfers": ROWS[:2], "kinds": {"nvlink": {"startup_s": 1e-3, "efficiency": [0.5, 0.6]}}}
    ways, _ = calibrated(TOPO, read_calibration("c.json", document))
    assert (ways.costs["nvlink"].startup_s, ways.costs["nvlink"].efficiency) == (1e-3, (0.5, 0.6))
    assert ways.costs["nvlink"].source == "measured: given by c.json"
    assert [k.gb_per_s for k in ways.topo.links] == [k.gb_per_s for k in TOPO.links]


def test_transfers_of_other_machines_are_counted_not_used():
    rows = [{"from": "GPU0", "to": "GPU7", "bytes": 1, "seconds": 1}, timed(10**6, 1, "tcp")]
    ways, unused = calibrated(TOPO, read_calibration("c.json", rows))
    assert unused == 2
    assert costs_document(ways.costs) == {}


@pytest.mark.parametrize("document", [None, {}, [], {"transfers": 3}, {"kinds": [1]}, "x"])
def test_no_costs_are_refused(document):
    with pytest.raises(InputError):
        read_calibration("c.json", document)


def test_all_faults_are_told():
    rows = [
        3,
        {"from": "GPU0"},
        {"from": "a", "to": "b", "bytes": -1, "seconds": float("nan"), "descriptors": True},
        {"from": "a", "to": "b", "bytes": 1, "seconds": 1, "kind": "pigeon"},
    ]
    kinds = {"pigeon": {"startup_s": 1}, "tcp": {}, "nvlink": {"efficiency": [2, 1]}}
    with pytest.raises(InputError) as caught:
        read_calibration("c.json", {"transfers": rows, "kinds": kinds})
    assert len(caught.value.faults) == 11
    assert {f.code for f in caught.value.faults} == {"costs", "kind-unknown"}
