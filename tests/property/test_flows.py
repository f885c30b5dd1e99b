"""Laws of plans: capacities hold, bytes arrive, the bound bounds, more links never hurt, names do not matter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from divvy.fleet.topology.graph import Link, LinkKind, Origin, Source
from divvy.fleet.topology.read import build
from divvy.planners.transfers.bound import bound
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.fair import fair_rates, fair_rates_plain, uses_of
from divvy.planners.transfers.plan import Transfer
from divvy.planners.transfers.registry import PLANNERS
from divvy.planners.transfers.roads import Path, Roads, roads
from divvy.sim.flows.compare import run
from divvy.sim.flows.rates import check_rates

NEAR = st.sampled_from(["PIX", "PXB", "PHB", "NODE"])
SETTINGS = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@st.composite
def matrices(draw: st.DrawFn) -> str:
    """Draw a machine: two sockets, each with its PCIe distance; NVLinks in pairs, in a plane, or none; NICs."""
    gpus, nics = draw(st.integers(2, 6)), draw(st.integers(0, 3))
    names = [f"GPU{i}" for i in range(gpus)] + [f"NIC{i}" for i in range(nics)]
    socket = [draw(st.integers(0, 1)) for _ in names]
    near = {0: draw(NEAR), 1: draw(NEAR)}
    mesh = draw(st.sampled_from(["", "NV4", "NV18"]))

    def label(a: int, b: int) -> str:
        if a == b:
            return "X"
        if mesh == "NV18" and max(a, b) < gpus:
            return mesh
        if mesh == "NV4" and max(a, b) < gpus and a // 2 == b // 2:
            return mesh
        return near[socket[a]] if socket[a] == socket[b] else "SYS"

    rows = ["\t" + "\t".join(names)]
    rows += [f"{name}\t" + "\t".join(label(a, b) for b in range(len(names))) for a, name in enumerate(names)]
    return "\n".join(rows)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[Transfer]]:
    text = draw(matrices())
    topo = build([("m", text)])
    gpus = [v.id for v in topo.vertices.values() if v.kind == "gpu"]
    batch = []
    for i in range(draw(st.integers(1, 6))):
        a, b = draw(st.permutations(gpus))[:2]
        release = draw(st.sampled_from([0.0, 0.0, 0.0, 0.002, 0.01]))
        batch.append(Transfer(f"t{i}", a, b, draw(st.integers(10**6, 4 * 10**9)), release))
    return text, batch


def ways_of(text: str) -> Roads:
    return roads(build([("m", text)]))


@given(cases(), st.sampled_from(sorted(PLANNERS)))
@SETTINGS
def test_capacities_hold_bytes_arrive_and_the_bound_bounds(case, planner):
    ways, batch = ways_of(case[0]), case[1]
    finder = Finder(ways)
    made, outcome, _ = run(ways, finder, batch, planner, keep_pieces=True)
    assert check_rates(ways, batch, made.flows, outcome) == []
    if not made.refused:
        assert outcome.makespan_s >= bound(ways, finder, batch) * (1 - 1e-6)


@given(cases())
@SETTINGS
def test_the_plan_is_near_the_bound(case):
    ways, batch = ways_of(case[0]), case[1]
    finder = Finder(ways)
    assume(max(t.size_bytes for t in batch) >= 16 * 10**6)
    assert run(ways, finder, batch, "divvy")[1].makespan_s <= 1.5 * bound(ways, finder, batch)


@given(cases(), st.data())
@SETTINGS
def test_one_more_link_never_makes_it_worse(case, data):
    ways, batch = ways_of(case[0]), case[1]
    gpus = [v.id for v in ways.topo.vertices.values() if v.kind == "gpu"]
    a, b = data.draw(st.permutations(gpus))[:2]
    more = Link(
        a,
        b,
        LinkKind.NVLINK,
        data.draw(st.sampled_from([10.0, 50.0, 200.0])),
        Source(Origin.DEFAULT, "added"),
        count=2,
    )
    wider = roads(ways.topo.with_links((*ways.topo.links, more)))
    before = run(ways, Finder(ways), batch, "divvy")[1].makespan_s
    after = run(wider, Finder(wider), batch, "divvy")[1].makespan_s
    assert after <= before * 1.01


@given(matrices(), st.integers(0, 10**6))
@SETTINGS
def test_names_do_not_matter(matrix, seed):
    """Shuffle the GPUs of the matrix: the same machine, the same work, the same makespan."""
    rng = np.random.default_rng(seed)
    lines = [line.split("\t") for line in matrix.split("\n")]
    names = lines[0][1:]
    gpus = [n for n in names if n.startswith("GPU")]
    order = [*rng.permutation(len(gpus)).tolist(), *range(len(gpus), len(names))]
    cells = [[lines[1 + a][1 + b] for b in order] for a in order]
    other = "\n".join(
        ["\t" + "\t".join(names), *(f"{names[i]}\t" + "\t".join(row) for i, row in enumerate(cells))]
    )
    place = {names[old]: names[new] for new, old in enumerate(order)}
    batch = [
        Transfer(f"t{i}", *rng.choice(gpus, 2, replace=False), int(rng.integers(10**7, 10**9)))
        for i in range(4)
    ]
    moved = [Transfer(t.id, place[t.source], place[t.target], t.size_bytes) for t in batch]
    spans = []
    for text, work in ((matrix, batch), (other, moved)):
        ways = roads(build([("m", text)]))
        spans.append(run(ways, Finder(ways), work, "divvy")[1].makespan_s)
    assert spans[0] == pytest.approx(spans[1], rel=1e-9)


@st.composite
def sharings(draw: st.DrawFn) -> tuple[list[Path], list[float], list[float], list[float]]:
    resources = draw(st.integers(1, 5))
    count = draw(st.integers(1, 6))
    paths = [
        Path(
            (),
            tuple(
                sorted(
                    (r, draw(st.integers(1, 2)))
                    for r in draw(st.sets(st.integers(0, resources - 1), min_size=1))
                )
            ),
        )
        for _ in range(count)
    ]
    capacity = [draw(st.floats(1.0, 100.0)) for _ in range(resources)]
    weight = [draw(st.floats(0.1, 10.0)) for _ in range(count)]
    limit = [draw(st.sampled_from([float("inf"), 0.5, 5.0])) for _ in range(count)]
    return paths, capacity, weight, limit


@given(sharings())
def test_fair_rates_agree_with_their_definition(case):
    paths, capacity, weight, limit = case
    fast = fair_rates(uses_of(paths), np.array(capacity), np.array(weight), np.array(limit))
    plain = fair_rates_plain(paths, capacity, weight, limit)
    assert np.allclose(fast, plain, rtol=1e-6)
    for r, room in enumerate(capacity):
        assert sum(rate * dict(p.uses).get(r, 0) for rate, p in zip(fast, paths, strict=True)) <= room * (
            1 + 1e-9
        )
    for rate, path, top in zip(fast, paths, limit, strict=True):
        full = any(
            sum(x * dict(p.uses).get(r, 0) for x, p in zip(fast, paths, strict=True))
            >= capacity[r] * (1 - 1e-6)
            for r, _ in path.uses
        )
        assert full or rate >= top * (1 - 1e-9)
