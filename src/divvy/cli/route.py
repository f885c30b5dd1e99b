"""divvy route: how bytes should go from A to B, for one transfer or many, against a bound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from divvy.cli.render import Output
from divvy.cli.route_inputs import Costs, batch, batches, ways_of
from divvy.cli.route_replan import replan
from divvy.cli.route_serving import experts, layout, overlap, pair, tiers
from divvy.cli.topo_input import each, load, write_text
from divvy.errors import DivvyError, Fault, InputError
from divvy.fleet.topology.graph import Kind, Topology
from divvy.units import BYTES_HELP, parse_bytes

verb = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Plan how bytes move, explain it, prove it against a bound.",
)
verb.command("experts")(experts)
verb.command("tiers")(tiers)
verb.command("overlap")(overlap)
verb.command("layout")(layout)
verb.command("pair")(pair)
verb.command("replan")(replan)

Topo = Annotated[
    list[Path],
    typer.Option("--topo", metavar="FILE", help="Topology input; given more than once, they are merged."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NoPeer = Annotated[bool, typer.Option("--no-p2p", help="Plan as if GPUs had no PCIe peer-to-peer.")]
Descriptors = Annotated[int, typer.Option("--descriptors", min=1, help="Pieces that the bytes lie in.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of rules that choose at random.")]


@verb.command("explain")
def explain(
    topo: Topo,
    source: Annotated[
        str, typer.Option("--from", help="Where the bytes are: an id, a system name or a PCI address.")
    ],
    target: Annotated[str, typer.Option("--to", help="Where they go.")],
    size: Annotated[str, typer.Option("--bytes", help=BYTES_HELP)] = "1GB",
    descriptors: Descriptors = 1,
    costs: Costs = None,
    no_p2p: NoPeer = False,
    as_json: Json = False,
) -> None:
    """Explain one transfer: its route, what limits it, and what was rejected."""
    from divvy.cli.route_view import show_explanation  # noqa: PLC0415 - planners load numpy
    from divvy.planners.transfers.bound import bound  # noqa: PLC0415 - same
    from divvy.planners.transfers.candidates import Finder  # noqa: PLC0415 - same
    from divvy.planners.transfers.plan import MOST_BYTES, Transfer, resolve  # noqa: PLC0415 - same
    from divvy.sim.flows.compare import both_ways, run  # noqa: PLC0415 - same
    from divvy.sim.flows.document import explain_document  # noqa: PLC0415 - same

    try:
        count = int(size) if size.isdigit() else parse_bytes(size)
    except ValueError as error:
        raise InputError.one("bytes", str(error), path="--bytes", allowed=BYTES_HELP) from error
    if not 1 <= count <= MOST_BYTES:
        text = f"{size!r} is nothing to move" if count < 1 else f"{size!r} is more than 1 EiB"
        raise InputError.one("bytes", text, path="--bytes", allowed=BYTES_HELP)
    ways, measured = ways_of(topo, peer=not no_p2p, costs=costs)
    finder = Finder(ways)
    transfer = resolve(ways, [Transfer("t0", source, target, count, descriptors=descriptors)])[0]
    if not finder.between(transfer.source, transfer.target):
        raise InputError.one(
            "no-link",
            f"no link of any kind joins {transfer.source} and {transfer.target} in {ways.topo.name}",
            fix=_no_link(ways.topo, transfer.source, transfer.target),
        )
    plan, outcome, split = run(ways, finder, [transfer], "divvy")
    least = bound(ways, finder, [transfer], split)
    document = explain_document(
        ways, finder, transfer, plan, outcome, least, both_ways_s=both_ways(ways, finder, transfer)
    ) | {"costs": measured}
    out = Output(as_json=as_json, quiet=False)
    if not out.machine(document, []):
        show_explanation(out, document)


def _no_link(topo: Topology, *ends: str) -> str:
    """Return what to do where no link joins two places."""
    if any(topo.vertices[end].kind is Kind.NIC for end in ends):
        return "a NIC only passes bytes on: name the GPU, memory, drive or node that they come from or go to"
    return "add an input that has the missing links (a matrix for NVLinks, ibstat for ports)"


@verb.command("plan")
def plan(
    topo: Topo,
    transfers: Annotated[
        str, typer.Option("--transfers", metavar="FILE.json", help="A JSON file, or random:n=16,seed=1.")
    ],
    planner: Annotated[
        str, typer.Option("--planner", help="divvy, divvy-online, or a peer's rule (see compare).")
    ] = "divvy",
    rates: Annotated[
        Path | None,
        typer.Option("--rates", metavar="OUT.jsonl", help="Write the rate on each link over time."),
    ] = None,
    incast: Annotated[
        int, typer.Option("--incast", min=0, help="Most flows at once into one NIC; 0 for no limit.")
    ] = 0,
    costs: Costs = None,
    no_p2p: NoPeer = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Plan a batch of transfers: routes, shares, start, finish, bottleneck, and how far from the bound."""
    from divvy.cli.route_view import show_plan  # noqa: PLC0415 - planners load numpy
    from divvy.planners.transfers.bound import bound  # noqa: PLC0415 - same
    from divvy.planners.transfers.candidates import Finder  # noqa: PLC0415 - same
    from divvy.planners.transfers.incast import limits  # noqa: PLC0415 - same
    from divvy.planners.transfers.registry import choose  # noqa: PLC0415 - same
    from divvy.sim.flows.compare import reachable, run  # noqa: PLC0415 - same
    from divvy.sim.flows.document import plan_document  # noqa: PLC0415 - same
    from divvy.sim.flows.rates import rate_lines  # noqa: PLC0415 - same

    name = choose(planner)[0]
    ways, measured = ways_of(topo, peer=not no_p2p, costs=costs)
    finder = Finder(ways)
    kept, refused = reachable(finder, batch(transfers, ways))
    most = limits(ways, incast) if incast else None
    made, outcome, split = run(ways, finder, kept, name, seed, keep_pieces=rates is not None, incast=most)
    least = bound(ways, finder, kept, split)
    document = plan_document(ways, finder, kept, made, outcome, least, refused) | {"costs": measured}
    if rates is not None:
        lines = (json.dumps(line) + "\n" for line in rate_lines(ways, kept, made.flows, outcome))
        write_text(rates, "".join(lines), "--rates")
    out = Output(as_json=as_json, quiet=False)
    if not out.machine(document, []):
        show_plan(out, document)


@verb.command("compare")
def compare(
    topo: Annotated[
        Path, typer.Option("--topo", metavar="FILE|DIR", help="A topology input, or a directory of them.")
    ],
    transfers: Annotated[
        str, typer.Option("--transfers", metavar="FILE.json", help="A JSON file, or random:n=16,seed=1.")
    ],
    planners: Annotated[
        str, typer.Option("--planners", help="all, or names with commas between them.")
    ] = "all",
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="DIR", help="Write charts (SVG) into a directory.")
    ] = None,
    costs: Costs = None,
    no_p2p: NoPeer = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Run planners on the same work over one or many topologies, beside the bound."""
    from divvy.cli.route_view import show_comparison  # noqa: PLC0415 - planners load numpy
    from divvy.planners.transfers.registry import choose  # noqa: PLC0415 - same
    from divvy.sim.flows.compare import Result, geomeans  # noqa: PLC0415 - same
    from divvy.sim.flows.compare import compare as run_all  # noqa: PLC0415 - same

    names, work = choose(planners), batches(transfers, strict=not topo.is_dir())
    results, unplanned = list[Result](), list[dict[str, str]]()
    told: dict[str, Any] = {}
    for name, path in each(topo):
        try:
            ways, measured = ways_of([path], peer=not no_p2p, costs=costs)
            told |= {name: measured} if measured is not None else {}
            kept, lost = work(ways)
            found, missing = run_all(name, ways, kept, names, seed)
        except DivvyError as error:
            if not topo.is_dir():
                raise
            found, missing, lost = [], [], list(error.faults)
        results, unplanned = results + found, [*unplanned, *missing, *(_missing(name, f) for f in lost)]
    document: dict[str, Any] = {
        "schema": "divvy.route.compare/1",
        "transfers": transfers,
        "results": [result.to_json() for result in results],
        "geomean": geomeans(results),
        "unplanned": unplanned,
        "costs": told or None,
    }
    written = _plot(plot, document) if plot is not None else []
    out = Output(as_json=as_json, quiet=False)
    if not out.machine(document, []):
        show_comparison(out, document, names, written)


def _missing(topology: str, fault: Fault) -> dict[str, str]:
    """Return why a topology of a directory has no results, or not for a transfer."""
    transfer = "" if fault.path == topology else fault.path.removesuffix(".to").removesuffix(".from")
    row = {"topology": topology, "planner": "", "transfer": transfer}
    return {**row, "code": fault.code, "reason": fault.message}


@verb.command("config")
def config(
    topo: Topo,
    stack: Annotated[
        str, typer.Option("--for", metavar="STACK", help="vllm-nixl, mooncake, nccl or dynamo.")
    ],
    as_json: Json = False,
) -> None:
    """Print what to set in today's stacks for this machine, and why."""
    from divvy.planners.transfers.advice import advise  # noqa: PLC0415 - planners load numpy
    from divvy.planners.transfers.roads import roads  # noqa: PLC0415 - same

    document = advise(roads(load(topo)), stack)
    out = Output(as_json=as_json, quiet=False)
    if not out.machine(document, []):
        for line in document["text"]:
            out.screen.line(line)


def _plot(folder: Path, document: dict[str, Any]) -> list[Path]:
    """Write the charts of a comparison."""
    from divvy.sim.flows.charts import charts  # noqa: PLC0415 - only --plot pays for it

    written = []
    for name, text in charts(document).items():
        path = folder / name
        write_text(path, text, "--plot")
        written.append(path)
    return written
