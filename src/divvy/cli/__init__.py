"""The command line: one file per verb, imported only when its verb is used.

A verb is a file of this package whose first line reads ``\"\"\"divvy VERB: what it does.\"\"\"`` and which
holds ``verb``: a function (Typer's declaration style) or a `typer.Typer` with verbs of its own. It may hold
``CONTEXT``: settings of the command's context. Nothing else needs to know it: the help page reads first
lines, so that ``divvy status`` never pays for importing the simulator. A verb signals failure by raising
`divvy.errors.DivvyError`; `main` prints it and exits with its code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command as build_command

from divvy.errors import DivvyError

#: The help page: sections and the verbs in them, in this order. A verb that is not listed comes last.
SECTIONS: Final = {
    "Jobs": ("submit", "queue", "explain", "logs", "cancel"),
    "Fleet": ("up", "slurm", "status", "page", "publish", "drain", "token", "doctor", "backup", "restore"),
    "One plan": ("plan", "apply", "scenario"),
    "Budgets": ("budget", "statement", "audit", "whatif", "simulate", "decisions", "replay"),
    "Slices and transfers": ("slices", "serve", "lab", "topo", "route", "move", "pair"),
}
REST: Final = "More"

_HERE: Final = Path(__file__).parent
_MARK: Final = '"""divvy '
_CONTEXT: Final = {"help_option_names": ["-h", "--help"]}


def verbs() -> dict[str, str]:
    """Return every verb and its line of help, in the order of the help page, importing none of them."""
    described = {path.stem: _describe(path.stem) for path in sorted(_HERE.glob("*.py"))}
    found = {name: text for name, text in described.items() if text}
    listed = [name for names in SECTIONS.values() for name in names if name in found]
    return {name: found[name] for name in (*listed, *(n for n in found if n not in listed))}


def _describe(name: str) -> str:
    """Return the line of help of a verb; empty where there is no such verb."""
    if not name.isidentifier() or not (_HERE / f"{name}.py").is_file():
        return ""
    with (_HERE / f"{name}.py").open(encoding="utf-8") as file:
        line = file.readline()
    start = f"{_MARK}{name}: "
    return (
        line.removeprefix(start).strip().removesuffix('"""').removesuffix(".")
        if line.startswith(start)
        else ""
    )


def _load(name: str) -> TyperCommand | TyperGroup:
    """Import a verb and return its command."""
    module = import_module(f"divvy.cli.{name}")
    verb: Callable[..., Any] | typer.Typer = module.verb
    if not isinstance(verb, typer.Typer):
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name, context_settings=_CONTEXT | getattr(module, "CONTEXT", {}))(verb)
        verb = single
    command = build_command(verb)
    command.name = name
    assert isinstance(command, TyperCommand | TyperGroup)  # noqa: S101 - what Typer builds
    return command


class Verbs(TyperGroup):
    """The root command; finds its verbs in this package."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the signature is Typer's
        """Return the names of all verbs."""
        return list(verbs())

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | TyperGroup | None:  # noqa: ARG002 - same
        """Return one verb; None where there is no such verb."""
        return _load(cmd_name) if _describe(cmd_name) else None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the verb that was asked for; an unknown one is refused with the nearest names."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            known = list(verbs())
            near = get_close_matches(args[0], known, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"choose one of: {', '.join(known)}"
            ctx.fail(f"no verb {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the signature is Typer's
        """Write the verbs in their sections."""
        for title, rows in _sections():
            with formatter.section(title):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the verbs that begin so, without importing them, and the options."""
        completions = super(TyperGroup, self).shell_complete(ctx, incomplete)
        item = import_module(f"{_click_package()}.shell_completion").CompletionItem
        named = [item(name, help=text) for name, text in verbs().items() if name.startswith(incomplete)]
        return [*named, *completions]


def _click_package() -> str:
    """Return the package that Typer's commands come from: Click, or the copy of it that Typer carries."""
    return TyperGroup.__mro__[1].__module__.rpartition(".")[0]


def _sections() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    rest = verbs()
    for title, names in SECTIONS.items():
        rows = [(name, rest.pop(name)) for name in names if name in rest]
        if rows:
            yield title, rows
    if rest:
        yield REST, list(rest.items())


app = typer.Typer(
    name="divvy",
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help needs no Rich (100 ms of imports) and is never cut
    context_settings=_CONTEXT,
)


def _print_version(*, wanted: bool) -> None:
    if wanted:
        from divvy import __version__  # noqa: PLC0415 - one line, wanted once
        from divvy.cli.compiled import compiled  # noqa: PLC0415 - the same

        typer.echo(f"divvy {__version__} ({'planner compiled' if compiled() else 'plain Python'})")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Share a fleet of GPUs: budgets, slices, transfers.

    `divvy up` starts the control plane on this machine; every other verb talks to it. `divvy VERB --help`
    explains a verb. Exit codes: 0 done, 1 failed, 2 not understood, 3 no answer, 4 not allowed, 5 no such
    thing, 6 the state has moved on.
    """


def main() -> None:
    """Run the command line; a refusal is printed with its code and gives the exit code."""
    try:
        app(prog_name="divvy")
    except DivvyError as error:
        from divvy.cli.refusal import print_error  # noqa: PLC0415 - only a failure pays for it

        ours = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
        print_error(error, as_json="--json" in ours)
        sys.exit(error.exit_code)
