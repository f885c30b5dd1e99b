"""divvy scenario: training, inference and caches on one fleet, as one plan beside tools apart."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from divvy.cli.options import AsJson, NoTruncate, Quiet
from divvy.cli.render import NONE, Column, Output, Span

_SHOWN: Final = (
    ("occupancy", "occupancy of all GPUs"),
    ("training.useful_gpu_hours", "useful GPU-hours of training"),
    ("training.delivered_over_owed", "delivered over owed, training, hour by hour"),
    ("training.worst_account", "worst training account, period"),
    ("training.lost_fraction", "lost by training"),
    ("services.held_gpu_hours", "GPU-hours held by services"),
    ("services.in_time", "queries in time"),
    ("services.worst_in_time", "queries in time, worst service"),
    ("services.objective_held", "time in which objectives held"),
)


def verb(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.toml", help="A fleet file with training and traffic.")
    ],
    seeds: Annotated[int, typer.Option("--seeds", min=0, max=100, help="In place of the file's.")] = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Replay one fleet under one plan, and the same work under three tools that do not know of each other.

    The tools apart: a fixed part of the fleet for inference, cut by PARIS and served by ELSA, caches by equal
    labels in turns, training on the rest under Slurm's fair share. With -q: the names of the arrangements.
    """
    from divvy.cli.scenario_file import read_scenario  # noqa: PLC0415 - replays load numpy
    from divvy.sim.whole.compare import compare  # noqa: PLC0415 - same

    told = _teller()
    plan = read_scenario(file, told)
    document = compare(plan.tools, range(1, (seeds or plan.seeds) + 1), told)
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(document, [one["name"] for one in document["arrangements"]]):
        _print(output, document)


def _teller() -> Any:
    if not sys.stderr.isatty():
        return lambda _text: None
    return lambda text: print(text, file=sys.stderr)


def _print(output: Output, document: dict[str, Any]) -> None:
    fleet, begin_end = document["fleet"], document["window_hours"]
    output.screen.line(
        Span(f"{fleet['gpus']} GPUs on {fleet['nodes']} nodes", "bold"),
        f", {document['training_jobs']} training jobs, hours {begin_end[0]:g} to {begin_end[1]:g},"
        f" {len(document['seeds'])} seeds",
    )
    arrangements = document["arrangements"]
    rows: list[Any] = [
        (text, *(_cell(one["figures"].get(key)) for one in arrangements)) for key, text in _SHOWN
    ]
    moves = [key for key in arrangements[0]["figures"] if key.startswith("transfers.")]
    rows += [
        (key.replace("transfers.", "caches "), *(_cell(one["figures"].get(key)) for one in arrangements))
        for key in moves
    ]
    columns = (Column("MEASURE"), *(Column(one["name"].upper(), right=True) for one in arrangements))
    output.screen.table(columns, rows)
    for one in arrangements:
        if one["fixed_gpus"]:
            parts = ", ".join(f"{name} {count}" for name, count in one["fixed_gpus"].items())
            output.screen.line(Span(f"{one['name']}: {parts} GPUs fixed (last seed)", "dim"))


def _cell(figure: dict[str, Any] | None) -> str:
    if figure is None or figure["value"] is None:
        return NONE
    return f"{figure['value']:.4g}"
