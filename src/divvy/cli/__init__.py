"""The command line: one file per verb, registered here in the order of the help page."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="divvy",
    help="Share a fleet of GPUs: budgets, slices, transfers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    """Share a fleet of GPUs: budgets, slices, transfers."""


def main() -> None:
    """Run the command line."""
    app()
