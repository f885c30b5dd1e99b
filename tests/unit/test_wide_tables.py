"""Tables that are wider than the terminal are written in blocks."""

from __future__ import annotations

import io

from divvy.cli.render import Column, Screen
from divvy.cli.wide import wide_table

COLUMNS = [Column(""), *(Column(f"GPU{i}") for i in range(6))]
ROWS = [[f"GPU{a}", *("X" if a == b else "NV18" for b in range(6))] for a in range(2)]


def written(width: int | None) -> list[str]:
    screen = Screen(io.StringIO())
    screen.width = width
    wide_table(screen, COLUMNS, ROWS)
    return screen.stream.getvalue().split("\n")


def test_a_narrow_terminal_gets_blocks_that_fit_and_lose_nothing():
    lines = written(24)
    assert max(map(len, lines)) <= 24
    assert [line.split() for line in lines if "GPU2" in line] == [["GPU0", "GPU1", "GPU2"]]
    assert sum(line.count("NV18") for line in lines) == 10
    assert sum(line.startswith("GPU1") for line in lines) == 2


def test_without_a_terminal_there_is_one_block():
    assert len([line for line in written(None) if line]) == 3
