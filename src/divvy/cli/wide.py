"""Tables with more columns than a terminal is wide: the same rows again below, with the next columns."""

from __future__ import annotations

from collections.abc import Sequence

from divvy.cli.render import Cell, Column, Screen, cells, spans

_GAP = 2


def wide_table(screen: Screen, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """Write a table in as many blocks as the terminal needs; the first column leads each block."""
    widths = [
        max([cells(column.title), *(cells("".join(s.text for s in spans(row[i]))) for row in rows)])
        for i, column in enumerate(columns)
    ]
    room = screen.width if screen.width is not None else sum(widths) + _GAP * len(widths)
    blocks: list[list[int]] = [[]]
    left = room - widths[0]
    for index in range(1, len(columns)):
        if left < widths[index] + _GAP and blocks[-1]:
            blocks.append([])
            left = room - widths[0]
        blocks[-1].append(index)
        left -= widths[index] + _GAP
    for position, block in enumerate(blocks):
        if position:
            screen.line()
        shown = [0, *block]
        screen.table([columns[i] for i in shown], [[row[i] for i in shown] for row in rows])
