"""What the verbs of `divvy route` read: topologies with measured costs, batches of transfers, JSON files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from divvy.cli.topo_input import load, read_text
from divvy.errors import Fault, InputError

Costs = Annotated[
    Path | None,
    typer.Option(
        "--costs", metavar="FILE.json", help="Measured costs: timed transfers, or numbers by kind of route."
    ),
]


def ways_of(
    topo: Sequence[Path], *, peer: bool, costs: Path | None = None
) -> tuple[Any, dict[str, Any] | None]:
    """Return the roads of topology files, and what a document says of measured costs (None without any).

    Args:
        topo: The files.
        peer: Whether GPUs have PCIe peer-to-peer.
        costs: A file of measured costs.
    """
    from divvy.planners.transfers.calibrate import calibrated, costs_document, read_calibration  # noqa: PLC0415 - numpy
    from divvy.planners.transfers.roads import roads  # noqa: PLC0415 - same

    graph = load(topo, peer=peer)
    if costs is None:
        return roads(graph), None
    ways, unused = calibrated(graph, read_calibration(costs.name, json_of(costs)))
    said = {"file": costs.name, "kinds": costs_document(ways.costs), "transfers_without_route": unused}
    return ways, said


def batch(text: str, ways: Any) -> list[Any]:
    """Return the transfers of a file or of a random batch, with their places as vertex ids."""
    return batches(text, strict=True)(ways)[0]


def batches(text: str, *, strict: bool) -> Callable[[Any], tuple[list[Any], list[Fault]]]:
    """Return what gives the transfers that some roads have the places of, and a fault for each other place.

    Args:
        text: A file, or ``random:...``.
        strict: Whether a place that is not there is an error.

    Raises:
        InputError: If the file cannot be read.
    """
    from divvy.planners.transfers.plan import placed, read_transfers, resolve  # noqa: PLC0415 - planners load numpy
    from divvy.sim.flows.batches import is_random, random_batch  # noqa: PLC0415 - same

    if is_random(text):
        return lambda ways: (random_batch(ways.topo, text), [])
    listed = read_transfers(Path(text).name, json_of(Path(text)))
    if strict:
        return lambda ways: (resolve(ways, listed), [])
    return lambda ways: placed(ways, listed)


def json_of(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        InputError: If it is not JSON; the fault has the line.
    """
    try:
        return json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InputError.one(
            "unreadable",
            f"{path} is not JSON: {getattr(error, 'msg', 'nested too deep')}",
            path=f"{path}:{line}",
        ) from error
