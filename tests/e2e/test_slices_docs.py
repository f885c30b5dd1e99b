"""The commands of the tutorial and the how-tos of slices run as they stand (with fewer seeds)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from divvy.cli.slices import verb

DOCS = Path(__file__).parents[2] / "docs"
NEEDS_HARDWARE = (
    "sizes.txt",
    "--server",
    "p.csv",
    "resnet50.csv",
    "apply plan.json  ",
    "apply plan.json --yes",
)


def commands(page):
    """The indented lines that begin with `divvy slices` or `printf`, joined over backslashes."""
    text = re.sub(r"\\\n\s+", " ", (DOCS / page).read_text())
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return [line for line in lines if line.startswith(("divvy slices", "printf "))]


@pytest.mark.parametrize(
    "page", ["tutorial/slices.md", "howto/change-slices.md", "howto/measure-a-server.md"]
)
def test_commands_of_the_docs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = commands(page)
    assert found
    for line in found:
        if any(mark in line for mark in NEEDS_HARDWARE):
            continue
        words = shlex.split(line, comments=True)
        target = None
        if ">" in words:
            target = tmp_path / words[words.index(">") + 1]
            words = words[: words.index(">")]
        if words[0] == "printf":
            target.write_text(words[1].replace("\\n", "\n"))
            continue
        quick = ["--seeds", "1", "--queries", "2000"] if words[2] == "plan" else []
        done = CliRunner().invoke(verb, [*words[2:], *quick])
        assert done.exit_code == 0, (line, done.output, done.exception)
        if target is not None:
            target.write_text(done.output)
