"""The verbs of `divvy lab rails`: hosts with unequal rails in network namespaces of this machine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from divvy.adapters.rails import lab as rails
from divvy.adapters.rails.fabric import (
    RATES_HELP,
    Fabric,
    format_rate,
    parse_rate,
    read_fabric,
    topology_of,
)
from divvy.adapters.rails.lab import RailsLab
from divvy.cli.options import AsJson, NoTruncate, Quiet
from divvy.cli.render import Cell, Column, Output, Span
from divvy.cli.topo_input import write_text
from divvy.errors import InputError

verb = typer.Typer(
    help="Hosts with unequal rails: namespaces joined by rate-limited links. Without a verb it builds a lab.",
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Name = Annotated[str, typer.Option("--name", help="Name of the lab, so that several can stand.")]
Host = Annotated[str, typer.Argument(metavar="HOST", help="h0, h1, ...")]
Rail = Annotated[str, typer.Argument(metavar="RAIL", help="rail0, rail1, ...")]

_DEFAULT: Final = "rails"
_COLUMNS: Final = (
    Column("HOST"),
    Column("RAIL"),
    Column("DEVICE"),
    Column("ADDRESS"),
    Column("RATE", right=True),
    Column("STATE"),
    Column("NAMESPACE", drop=1),
)


@verb.callback(invoke_without_command=True)
def build(
    context: typer.Context,
    hosts: Annotated[int, typer.Option("--hosts", help="How many hosts.")] = 4,
    rails_each: Annotated[int, typer.Option("--rails", help="Rails of each host.")] = 2,
    rates: Annotated[
        str, typer.Option("--rates", help=f"{RATES_HELP[0].upper()}{RATES_HELP[1:]}.")
    ] = "1gbit",
    name: Name = _DEFAULT,
    mtu: Annotated[int, typer.Option("--mtu", help="Bytes of a frame.")] = 9000,
    topology: Annotated[
        Path | None, typer.Option("--topology", metavar="FILE", help="Write its graph (divvy.topo/1).")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Build a lab and leave it standing; needs root."""
    if context.invoked_subcommand is not None:
        return
    fabric = read_fabric(name, hosts, rails_each, rates, mtu=mtu)
    stands = RailsLab.up(fabric)
    try:
        if topology is not None:
            write_text(topology, json.dumps(topology_of(fabric).to_json()), "--topology")
    except BaseException:
        stands.down()
        raise
    _show(fabric, Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate))


@verb.command("show")
def show(
    name: Name = _DEFAULT, as_json: AsJson = False, quiet: Quiet = False, no_truncate: NoTruncate = False
) -> None:
    """Show a lab: hosts, rails, rates, addresses, and how to run a command on a host."""
    _show(RailsLab.find(name).fabric, Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate))


@verb.command("set")
def set_rate(
    host: Host,
    rail: Rail,
    rate: Annotated[str, typer.Argument(metavar="RATE", help="Such as 400mbit.")],
    name: Name = _DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Change the rate of a rail while it is in use."""
    try:
        bits = parse_rate(rate)
    except ValueError as error:
        raise InputError.one("lab-rates", str(error), path="RATE", allowed="such as 400mbit") from error
    stands = RailsLab.find(name)
    stands.set_rate(_number(host, "h", "HOST"), _number(rail, "rail", "RAIL"), bits)
    _changed(stands, f"{host} {rail}: {format_rate(bits)}", as_json=as_json)


@verb.command("cut")
def cut(host: Host, rail: Rail, name: Name = _DEFAULT, as_json: AsJson = False) -> None:
    """Cut a rail at the switch: what is on the way is lost."""
    stands = RailsLab.find(name)
    stands.cut(_number(host, "h", "HOST"), _number(rail, "rail", "RAIL"))
    _changed(stands, f"{host} {rail}: cut", as_json=as_json)


@verb.command("restore")
def restore(host: Host, rail: Rail, name: Name = _DEFAULT, as_json: AsJson = False) -> None:
    """Join a rail that was cut again."""
    stands = RailsLab.find(name)
    stands.restore(_number(host, "h", "HOST"), _number(rail, "rail", "RAIL"))
    _changed(stands, f"{host} {rail}: up", as_json=as_json)


@verb.command("down")
def down(
    name: Name = _DEFAULT,
    every: Annotated[bool, typer.Option("--all", help="Every lab of this machine.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove a lab, whole or half-built; twice is harmless. Processes on its hosts are named, not ended."""
    names = rails.standing() if every else [name]
    gone: list[str] = []
    left: list[int] = []
    for each in names:
        left += rails.inside(each)
        gone += rails.remove(each)
    out = Output(as_json=as_json, quiet=False)
    if out.machine({"schema": "divvy.lab.removed/1", "namespaces": gone, "processes": left}, gone):
        return
    out.screen.line(f"removed {len(gone)} namespaces" if gone else "no lab of that name stood")
    if left:
        words = ", ".join(map(str, left))
        out.screen.line(Span(f"still running, without a network now: processes {words}", "yellow"))


def _number(text: str, word: str, where: str) -> int:
    """Return the number of a host or rail given as ``h2``, ``rail1``, ``e1`` or ``2``.

    Raises:
        InputError: If it is none.
    """
    match = re.fullmatch(rf"(?:{word}|e)?(\d{{1,3}})", text.strip(), re.ASCII)
    if match is None:
        raise InputError.one("lab-place", f"{text!r} is none", path=where, allowed=f"{word}0, {word}1, ...")
    return int(match.group(1))


def _changed(stands: RailsLab, text: str, *, as_json: bool) -> None:
    out = Output(as_json=as_json, quiet=False)
    if not out.machine(stands.fabric.to_json(), []):
        out.screen.line(text)


def _show(fabric: Fabric, out: Output) -> None:
    """Print a lab."""
    document: dict[str, Any] = fabric.to_json()
    if out.machine(document, (host["namespace"] for host in document["hosts"])):
        return
    rows: list[tuple[Cell, ...]] = [
        (
            host["host"],
            rail["rail"],
            rail["device"],
            rail["address"],
            format_rate(rail["bits_per_second"]),
            Span("up", "green") if rail["up"] else Span("cut", "red"),
            host["namespace"],
        )
        for host in document["hosts"]
        for rail in host["rails"]
    ]
    out.screen.table(_COLUMNS, rows)
    enter = " ".join(fabric.enter(0))
    out.screen.line(Span(f"run on a host: {enter} COMMAND", "dim"))
    out.screen.line(Span(f"remove: divvy lab rails down --name {fabric.name}", "dim"))
