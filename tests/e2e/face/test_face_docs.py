"""The documentation of the command line is run, and leaves nothing out."""

from __future__ import annotations

import re
import shlex

import pytest
from typer.main import get_command

from divvy.cli import app
from documented import DOCS, blocks

pytestmark = pytest.mark.e2e

OURS = (
    "submit",
    "queue",
    "explain",
    "logs",
    "cancel",
    "status",
    "page",
    "publish",
    "doctor",
    "whatif",
    "drain",
    "token",
    "budget",
    "statement",
)


def examples(page: str) -> list[str]:
    """Return the commands of the console blocks of a page."""
    lines = [line for block in blocks(DOCS / page, "console") for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def test_every_example_of_the_reference_works(divvy, home, monkeypatch):
    (home / "up.json").write_text('{"url": "http://127.0.0.1:8470"}')
    (home / "budget.toml").write_text("[accounts.lab]\nshare = 100\n")
    monkeypatch.chdir(home)
    commands = examples("reference/cli.md")
    assert len(commands) > 20
    for command in commands:
        ran = divvy(*shlex.split(command)[1:])
        assert ran.code == 0, f"{command}\n{ran.err}"


@pytest.mark.parametrize("verb", OURS)
def test_the_reference_names_every_option(verb):
    text = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    section = text.split(f"\n### {verb}\n")[1].split("\n### ")[0]
    command = get_command(app).get_command(None, verb)
    parts = list(command.commands.values()) if hasattr(command, "commands") else [command]
    everywhere = {"--json", "--quiet", "--no-truncate", "--server", "--help"}
    for part in parts:
        for parameter in part.params:
            longest = max(parameter.opts, key=len)
            if longest.startswith("--") and longest not in everywhere:
                assert f"`{longest}" in section or f" {longest}" in section, f"{verb}: {longest}"


def test_exit_codes_are_those_of_the_code():
    from divvy import errors  # noqa: PLC0415

    table = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8").split("## Exit codes")[1]
    documented = {int(code) for code in re.findall(r"^\| (\d) \|", table, re.MULTILINE)}
    assert documented == {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
