"""divvy lab: emulated and throttled parts of a fleet that really execute on this machine."""

from __future__ import annotations

from pathlib import Path

import typer

from divvy.cli import lab_rails
from divvy.cli.options import AsJson, NoTruncate, Quiet, group

# ruff: noqa: PLC0415 - each verb imports what it needs when it is used

verb = group(__doc__)
verb.add_typer(lab_rails.verb, name="rails")


@verb.callback()
def _lab() -> None:
    """Start emulated and throttled parts of a fleet that really execute on this machine."""


@verb.command("slices")
def slices(
    layout: str = typer.Option(
        ..., "--layout", help="Plan (JSON of slices plan), or sizes: 4+2+1,7 (GPUs by comma)."
    ),
    profile: str = typer.Option(..., "--profile", help="Latency profile (CSV), or fitted:MODEL."),
    sku: str = typer.Option("A100-80GB", "--sku", help="What sizes are cut from."),
    work: str = typer.Option(
        "sleep", "--work", help="sleep (EMULATED: the table's time is slept) | cpu (quotas) | triton."
    ),
    scale: float = typer.Option(1.0, "--scale", help="All times of the profile times this."),
    largest: int = typer.Option(64, "--largest", min=1, max=4096, help="Largest batch that is accepted."),
    apart: bool = typer.Option(False, "--apart", help="One process per slice, so that one can be killed."),
    port: int = typer.Option(0, "--port", min=0, max=65_000, help="First port; 0 for free ones."),
    backends: Path | None = typer.Option(None, "--backends", help="Write the slices for divvy serve here."),
    slo_ms: float = typer.Option(0.0, "--slo-ms", min=0, help="Objective in that file. [as slices plan]"),
    seconds: float = typer.Option(0.0, "--for", min=0, help="End after so many seconds; 0: on Ctrl-C."),
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Start one real server per slice on loopback, each as fast as its slice; runs until Ctrl-C."""
    from divvy.cli.lab_backends import Written
    from divvy.cli.lab_slices import Setting, run_lab
    from divvy.cli.render import Output

    setting = Setting(layout, profile, sku, work, scale, largest)
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    run_lab(setting, port, seconds, Written(backends, slo_ms), output, apart=apart)
