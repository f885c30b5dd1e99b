"""The files that a comparison leaves behind: events, statements, traces for Perfetto, the report."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from divvy.cli.simulate_statement import write_statement
from divvy.errors import InputError
from divvy.sim.events import event_lines, file_name
from divvy.sim.measures import Window
from divvy.sim.perfetto import MOST_EVENTS, trace_of
from divvy.sim.replay import Replay
from divvy.units import SECOND, parse_duration


@dataclass(slots=True)
class Files:
    """Where the files go; None for those that nobody asked for.

    Attributes:
        events: What happened, one file per replay.
        statement: Owed and delivered, one file per replay.
        perfetto: A trace for Perfetto, one file per replay.
        report: Directory of the report.
        part: Part of the replay that the traces show, ms; None for what counts.
        most: Most slices in a trace.
        pictures: Pictures of the first seed so far, by title.
    """

    events: Path | None = None
    statement: Path | None = None
    perfetto: Path | None = None
    report: Path | None = None
    part: tuple[int, int] | None = None
    most: int = MOST_EVENTS
    pictures: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)

    def save(self, replay: Replay, window: Window, label: str, *, only: bool) -> None:
        """Write the files of one replay.

        Args:
            replay: The replay.
            window: What counts of it.
            label: Name of its budget where there are several, else empty.
            only: Whether it is the only replay.

        Raises:
            InputError: If one cannot be written.
        """
        if self.events is not None:
            name = file_name(_labelled(str(self.events), label), replay.policy, replay.seed, only=only)
            text = "".join(f"{line}\n" for line in event_lines(replay))
            write_bytes(Path(name), text.encode(), "--events")
        if self.statement is not None:
            place = self.statement.with_stem(_labelled(self.statement.stem, label))
            write_statement(place, replay, window, only=only)
        if self.perfetto is not None:
            document = trace_of(replay, self._shown(window, replay), self.most)
            packed = gzip.compress(json.dumps(document, separators=(",", ":")).encode(), 6, mtime=0)
            write_bytes(_perfetto_name(self.perfetto, replay, label, only=only), packed, "--perfetto")
        if self.report is not None and replay.seed == 0:
            from divvy.cli.simulate_plots import pictures  # noqa: PLC0415 - only a report pays for it

            title = f"{replay.policy}, {label}" if label else replay.policy
            self.pictures[title] = pictures(replay, window)

    def _shown(self, window: Window, replay: Replay) -> Window:
        if self.part is None:
            return window
        start, end = self.part
        if start >= replay.end:
            begins, ends = start / SECOND, replay.end / SECOND
            raise InputError.one(
                "perfetto-window",
                f"nothing happens after {ends:.0f} s, the window begins at {begins:.0f} s",
                path="--perfetto-window",
                fix="choose an earlier one",
            )
        return Window(start, min(end, replay.end))


def read_part(text: str) -> tuple[int, int] | None:
    """Return the ms of a window such as ``7d..8d``; None for an empty text.

    Raises:
        InputError: If it cannot be read or is empty.
    """
    if not text:
        return None
    first, dots, last = text.partition("..")
    try:
        start, end = parse_duration(first), parse_duration(last)
    except ValueError as error:
        raise InputError.one("perfetto-window", str(error), path="--perfetto-window") from error
    if not dots or start >= end:
        raise InputError.one(
            "perfetto-window",
            f"{text!r} is no window",
            path="--perfetto-window",
            allowed="FROM..TO, times since the first submission",
            fix='write for example "7d..8d"',
        )
    return start, end


def make_directory(path: Path, option: str) -> None:
    """Make a directory, before anything takes long.

    Raises:
        InputError: If it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, option, error) from error


def write_bytes(path: Path, data: bytes, option: str) -> None:
    """Write a file.

    Raises:
        InputError: If it cannot be written.
    """
    try:
        path.write_bytes(data)
    except OSError as error:
        raise _unwritable(path, option, error) from error


def _unwritable(path: Path, option: str, error: OSError) -> InputError:
    return InputError.one(
        f"{option.removeprefix('--')}-file",
        error.strerror or str(error),
        path=str(path),
        fix=f"choose another path for {option}",
    )


def _labelled(name: str, label: str) -> str:
    return f"{name}.{label}" if label else name


def _perfetto_name(path: Path, replay: Replay, label: str, *, only: bool) -> Path:
    """Return where a trace goes: policy and seed stand before the ending, if there are several."""
    if only:
        return path
    ending = ".json.gz" if path.name.endswith(".json.gz") else path.suffix
    stem = path.name.removesuffix(ending)
    return path.with_name(f"{_labelled(stem, label)}.{replay.policy}.{replay.seed}{ending}")


def report_documents(report: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the reports of a document with their labels: one, or one per budget."""
    if "reports" in report:
        return [(part["accounts"], part) for part in report["reports"]]
    return [("", report)]
