"""The transfer benchmark without a network: pieces, turns, theory, and what it says where it cannot run."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from divvy.adapters.rails import lab
from divvy.adapters.rails.fabric import read_fabric
from divvy.cli import bench_transfers, bench_transfers_many
from divvy.cli.bench import measure
from divvy.cli.bench_transfers_crew import CrewError, Move, Moved, makespan
from divvy.cli.bench_transfers_guess import _grid
from divvy.cli.bench_transfers_setting import Setting, in_turns, rates
from divvy.cli.bench_transfers_station import GAP_BYTES, Station, pieces_of
from divvy.errors import InputError, NotFoundError


@pytest.mark.parametrize(("size", "count"), [(10, 3), (1 << 20, 256), (5, 5), (64, 1)])
def test_pieces_hold_all_bytes_and_never_touch(size: int, count: int) -> None:
    parts = pieces_of({"bytes": size, "pieces": count, "offset": 1000})
    assert len(parts) == count
    assert sum(part[2] for part in parts) == size
    for (s, t, n), (s2, t2, _) in pairwise(parts):
        assert (s2 - s - n, t2 - t - n) == (GAP_BYTES, GAP_BYTES)
    assert parts[0][1] == 1000


class Fake:
    """A crew that takes a fixed time, or fails on a turn."""

    def __init__(self, seconds: float, fails_on: int = -1) -> None:
        self.seconds, self.fails_on, self.turns, self.order = seconds, fails_on, 0, []

    def turn(self, moves: list[Move]) -> list[Moved]:
        self.turns += 1
        if self.turns == self.fails_on:
            raise CrewError("it broke")
        return [Moved(1.0, 1.0 + self.seconds, None, None) for _ in moves]


def test_the_first_turns_do_not_count_and_a_failure_is_told() -> None:
    setting = Setting(quick=True, announce=lambda _: None)
    lacking: dict[str, str] = {}
    crews = {"a": Fake(0.5), "b": Fake(0.25), "c": Fake(1.0, fails_on=2)}
    found = in_turns(setting, crews, [Move(0, 1, 100)], lacking, "x")
    assert {label: len(turns) for label, turns in found.items()} == {"a": 2, "b": 2}
    assert lacking == {"c": "it broke"}
    assert rates(found, 10**9) == {"a": 2.0, "b": 4.0}


def test_a_makespan_is_from_the_first_start_to_the_last_end() -> None:
    assert makespan([Moved(2.0, 3.0, None, None), Moved(1.5, 2.0, None, None)]) == 1.5


def test_twelve_transfers_fill_rooms_that_do_not_overlap() -> None:
    moves = bench_transfers_many._twelve(quick=False)
    assert len({(m.source, m.target) for m in moves}) == 12
    for host in range(4):
        mine = sorted((m.offset, m.size_bytes) for m in moves if m.target == host)
        assert all(a + n == b for (a, n), (b, _) in pairwise(mine))
        assert mine[-1][0] + mine[-1][1] <= bench_transfers_many._ROOM


def test_theory_of_an_incast_is_the_receivers_rails() -> None:
    theory = bench_transfers_many._theory(
        read_fabric("r", 4, 2, "400mbit,100mbit"), bench_transfers_many._incast(quick=False)
    )
    fair = 3 * (8 << 20) / 62.5e6
    assert theory.bound_s == pytest.approx(fair, rel=0.02)
    assert fair * 0.99 <= theory.simulated_s <= fair * 1.02


def test_the_grid_has_the_ends_that_are_asked_for_and_no_piece_of_nothing() -> None:
    grid = _grid(quick=False)
    assert {4096, 256 << 20} <= {size for size, _ in grid}
    assert {1, 16_384} <= {pieces for _, pieces in grid}
    assert all(size // pieces >= 64 for size, pieces in grid)


def test_where_no_lab_can_be_built_every_part_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "missing", lambda: "no root here")
    found = measure("transfers")["rows"]
    assert [row["case"] for row in found] == list(bench_transfers.PARTS)
    assert all(row["value"] is None and "no root here" in row["note"] for row in found)


def test_finished_parts_are_kept_and_limits_that_mean_nothing_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def part(_: Setting):
        ran.append("x")
        yield {"case": "x", "value": 1}

    monkeypatch.setattr(lab, "missing", lambda: "")
    monkeypatch.setattr(bench_transfers, "PARTS", {"x": part})
    for _ in range(2):
        assert list(bench_transfers.rows(cache=tmp_path)) == [{"case": "x", "value": 1}]
    assert ran == ["x"]
    late = list(bench_transfers.rows(minutes=0))
    assert "time was up" in late[0]["note"]
    with pytest.raises(InputError, match="takes no --seeds"):
        list(bench_transfers.rows(seeds=3))
    with pytest.raises(NotFoundError):
        measure("transfers", parts=["y"])


def test_a_station_tells_source_from_room() -> None:
    class Still:
        meta, address = "m", 0

    station = Station("still")
    station._driver = Still()
    station._buffer = np.arange(200, dtype=np.uint8)
    station.clear({})
    assert station.sums({"half": 1, "bytes": 100})["sum"] != station.sums({"half": 0, "bytes": 100})["sum"]
    assert station._buffer[:100].any()
    assert not station._buffer[100:].any()
