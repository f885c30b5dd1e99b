"""`divvy route replan`: a link is slow or dead; plan again for what has not arrived."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from divvy.cli.render import Output, Span
from divvy.cli.route_inputs import Costs, batch, json_of, ways_of
from divvy.cli.route_view import seconds, show_plan, size
from divvy.errors import Fault, InputError
from divvy.units import parse_bytes, parse_duration

_LINK = "Ends as divvy topo show names them, and what it carries now, one way in GB/s; 0 or dead: nothing."


def replan(
    topo: Annotated[
        list[Path], typer.Option("--topo", metavar="FILE", help="Topology input; several are merged.")
    ],
    transfers: Annotated[
        str, typer.Option("--transfers", metavar="FILE.json", help="The whole batch, as it was planned.")
    ],
    links: Annotated[list[str], typer.Option("--link", metavar="A,B=RATE", help=_LINK)],
    at: Annotated[
        str,
        typer.Option("--at", help="When it was seen: seconds, or text such as 2ms, after the batch began."),
    ],
    moved: Annotated[
        Path | None,
        typer.Option(
            "--moved", help="JSON: bytes that have arrived, by transfer. Without it what the plan says."
        ),
    ] = None,
    planner: Annotated[str, typer.Option("--planner", help="As for route plan.")] = "divvy",
    costs: Costs = None,
    no_p2p: Annotated[
        bool, typer.Option("--no-p2p", help="Plan as if GPUs had no PCIe peer-to-peer.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed of rules that choose at random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan again for the rest of a batch, after a link became slow or died."""
    from divvy.planners.transfers.candidates import Finder  # noqa: PLC0415 - planners load numpy
    from divvy.planners.transfers.registry import choose  # noqa: PLC0415 - same
    from divvy.sim.flows.compare import reachable  # noqa: PLC0415 - same
    from divvy.sim.flows.healing import heal  # noqa: PLC0415 - same

    ways, _ = ways_of(topo, peer=not no_p2p, costs=costs)
    finder = Finder(ways)
    kept, refused = reachable(finder, batch(transfers, ways))
    known = _moved(moved) if moved is not None else None
    changes = [_change(text) for text in links]
    again, document = heal(
        ways, finder, kept, changes, _moment(at), planner=choose(planner)[0], seed=seed, moved=known
    )
    document["plan"]["unplanned"] += [{"id": r.transfer, "code": r.code, "reason": r.text} for r in refused]
    out = Output(as_json=as_json, quiet=False)
    if not out.machine(document, []):
        _show(out, document, sum(t.size_bytes for t in kept), f"{len(again.done)} of {len(kept)}")


def _show(out: Output, document: dict[str, Any], whole: int, done: str) -> None:
    """Write what has arrived, the new plan, and both ends."""
    total = sum(document["moved"].values())
    out.screen.line(
        Span(f"{size(total)} of {size(whole)} have arrived", "bold"),
        f" after {seconds(document['at_s'])}; {done} transfers are done",
    )
    if document["plan"]["transfers"]:
        show_plan(out, document["plan"])
    without = seconds(document["without_s"]) if document["without_s"] is not None else "never"
    out.screen.line(f"first plan: {seconds(document['before_s'])}; without a new one: {without}")


def _moment(text: str) -> float:
    """Return the seconds of a moment."""
    try:
        value = float(text)
    except ValueError:
        try:
            value = parse_duration(text) / 1000.0
        except ValueError as error:
            raise InputError.one("moment", str(error), path="--at", allowed="0.002, or 2ms") from error
    if not 0 <= value < math.inf:
        raise InputError.one(
            "moment", f"{text!r} is no time after the begin", path="--at", allowed="0.002, or 2ms"
        )
    return value


def _change(text: str) -> Any:
    """Return the change that a link and its rate mean."""
    from divvy.planners.transfers.replan import Change  # noqa: PLC0415 - planners load numpy

    ends, _, rate = text.rpartition("=")
    a, _, b = ends.partition(",")
    try:
        value = 0.0 if rate.strip().lower() == "dead" else float(rate)
        if not (a.strip() and b.strip() and 0 <= value < math.inf):
            raise ValueError(text)  # noqa: TRY301 - one way to report it
    except ValueError as error:
        raise InputError.one(
            "link", f"{text!r} is no link with a rate", path="--link", allowed=f"A,B=RATE. {_LINK}"
        ) from error
    return Change(a.strip(), b.strip(), value)


def _moved(path: Path) -> dict[str, int]:
    """Return the bytes that have arrived by transfer."""
    document = json_of(path)
    body = document.get("moved", document) if isinstance(document, dict) else None
    if not isinstance(body, dict):
        raise InputError.one("moved", f"{path} is no object of bytes by transfer", path="--moved")
    out: dict[str, int] = {}
    faults: list[Fault] = []
    for name, value in body.items():
        try:
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise ValueError(f"{value!r} is no number of bytes")  # noqa: TRY301 - one way to report it
            out[name] = int(value) if isinstance(value, int) or value.isdigit() else parse_bytes(value)
        except ValueError as error:
            faults.append(Fault("moved", f"{path.name}:{name}", str(error)))
    if faults:
        raise InputError(f"{path.name} has {len(faults)} fault{'s' if len(faults) > 1 else ''}", faults)
    return out
