"""divvy topo: one picture of the interconnect from the files you have, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from divvy.cli.render import Cell, Column, Output, Span
from divvy.cli.topo_input import load, read_text, write_text
from divvy.cli.wide import wide_table
from divvy.errors import EXIT_FAILED, InputError
from divvy.fleet.topology.graph import Finding, Kind, Topology
from divvy.fleet.topology.words import LABELS

verb = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Read topology files, merge them into one graph, show it and check it.",
)

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE...", help="Inputs of one machine or cluster; they are merged. - is standard input."
    ),
]
_WIDEST = 24


@verb.command("show")
def show(
    files: Files = None,
    live: bool = typer.Option(
        False, "--live", help="Read this machine (nvidia-smi, sysfs, hwloc); files are merged in."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print divvy.topo/1 as JSON."),
    svg: Path | None = typer.Option(None, "--svg", metavar="OUT", help="Write a picture."),
    links: bool = typer.Option(
        False, "--links", help="List every link with its capacity and where it came from."
    ),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Print the ids of GPUs and NICs only."),
    no_truncate: bool = typer.Option(False, "--no-truncate", help="Never hide columns."),
) -> None:
    """Show the machine: devices, labels, links, warnings."""
    topo = _topology(files, live=live)
    if svg is not None:
        from divvy.fleet.topology.picture import draw  # noqa: PLC0415 - only a picture pays for it

        write_text(svg, draw(topo), "--svg")
    out = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    devices = topo.of_kind(Kind.GPU, Kind.NIC) or topo.of_kind(Kind.NODE)
    if out.machine(topo.to_json(), [v.id for v in devices]):
        return
    _summary(out, topo)
    if len(devices) <= _WIDEST:
        _matrix(out, topo)
    if links or len(topo.links) <= _WIDEST:
        _links(out, topo)
    else:
        out.screen.line(Span(f"{len(topo.links)} links; --links lists them with their sources", "dim"))
    _findings(out, topo.findings)
    if svg is not None:
        out.screen.line(f"picture: {svg}")


@verb.command("check")
def check(
    files: Files = None,
    live: bool = typer.Option(
        False, "--live", help="Check this machine (nvidia-smi, sysfs, hwloc); files are merged in."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print divvy.topo.check/1 as JSON."),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Print the codes of the warnings only."),
) -> None:
    """Check the machine: exit 0 clean, 1 warnings, 2 unreadable."""
    topo = _topology(files, live=live)
    out = Output(as_json=as_json, quiet=quiet)
    document = {
        "schema": "divvy.topo.check/1",
        "name": topo.name,
        "clean": not topo.findings,
        "warnings": [finding.to_json() for finding in topo.findings],
    }
    if not out.machine(document, [finding.code for finding in topo.findings]):
        if topo.findings:
            _findings(out, topo.findings)
        else:
            gpus, nics = len(topo.of_kind(Kind.GPU)), len(topo.of_kind(Kind.NIC))
            out.screen.line(
                Span("clean", "green"), f": {topo.name}, {gpus} GPUs, {nics} NICs, {len(topo.links)} links"
            )
    if topo.findings:
        raise typer.Exit(EXIT_FAILED)


def _topology(files: list[Path] | None, *, live: bool) -> Topology:
    """Return the topology of the files, of this machine, or of both."""
    if live:
        from divvy.adapters.topology.discover import discover  # noqa: PLC0415 - only --live pays for it

        return discover([(path.name, read_text(path)) for path in files or []])
    if not files:
        raise InputError.one(
            "inputs-missing",
            "no input was given",
            path="FILE",
            allowed="one or more files, or --live",
            fix="save nvidia-smi topo -m to a file, or read this machine with --live",
        )
    return load(files)


def _summary(out: Output, topo: Topology) -> None:
    """Write what there is, in a line or two."""
    count = Counter(v.kind for v in topo.vertices.values())
    words = [f"{n} {_plural(kind.value.replace('_', ' '), n)}" for kind, n in count.items()]
    out.screen.line(Span(topo.name, "bold"), Span(f"  {', '.join(words)}", "dim"))
    if not topo.peering.allowed:
        out.screen.line(
            Span(
                "no PCIe peer-to-peer between GPUs: what NVLink does not carry goes through memory", "yellow"
            )
        )


def _plural(word: str, count: int) -> str:
    """Return a kind of vertex in words for people."""
    word = {"gpu": "GPU", "nic": "NIC", "numa": "socket", "pci": "PCI device"}.get(word, word)
    return (
        word
        if count == 1
        else {"memory": "memories"}.get(word, f"{word}es" if word.endswith("ch") else f"{word}s")
    )


def _matrix(out: Output, topo: Topology) -> None:
    """Write the labels as nvidia-smi does."""
    devices = [v.id for v in topo.of_kind(Kind.GPU, Kind.NIC)]
    if len(devices) < 2:
        return
    rows: list[list[Cell]] = []
    for a in devices:
        cells: list[Cell] = [Span(a, "bold")]
        for b in devices:
            label = "X" if a == b else topo.label(a, b) or "?"
            cells.append(Span(label, _style(label)))
        rows.append(cells)
    wide_table(out.screen, [Column(""), *(Column(name) for name in devices)], rows)
    seen = {"NV#" if label.startswith("NV") else label for label in topo.pairs.values()}
    words = [f"{label} {text}" for label, text in LABELS.items() if label in seen]
    if any(topo.label(a, b) is None for a in devices for b in devices if a != b):
        words.append("? unknown")
    out.screen.line(Span("; ".join(words), "dim"))


def _style(label: str) -> str:
    """Return the colour of a label: near is green, far is dim."""
    if label.startswith("NV") or label == "XGMI":
        return "green"
    return {"PIX": "cyan", "PXB": "cyan", "X": "dim", "SYS": "dim", "?": "yellow"}.get(label, "")


def _links(out: Output, topo: Topology) -> None:
    """Write every link with its capacity and provenance."""
    rows: list[list[Cell]] = [
        [
            link.a,
            link.b,
            str(link.kind),
            f"{link.gb_per_s:.4g}",
            link.source.word,
            Span(f"{link.source.text}{f' ({link.source.where})' if link.source.where else ''}", "dim"),
        ]
        for link in topo.links
    ]
    columns = [Column("a"), Column("b"), Column("kind"), Column("GB/s one way", right=True), Column("source")]
    out.screen.table([*columns, Column("because", shrink=20, drop=1)], rows)


def _findings(out: Output, findings: tuple[Finding, ...]) -> None:
    """Write the warnings with what to do."""
    if findings:
        out.screen.line()
        plural = "s" if len(findings) > 1 else ""
        out.screen.line(Span(f"{len(findings)} warning{plural}", "bold yellow"))
    for finding in findings:
        out.screen.line(Span(f"{finding.code}  ", "yellow"), Span(finding.where, "bold"))
        out.screen.line(f"    {finding.text}")
        out.screen.line(Span("    do this  ", "dim"), finding.fix)
