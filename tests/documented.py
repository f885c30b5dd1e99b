"""The blocks of documentation pages, and the commands in them run as they are written."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from divvy.cli import main

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def blocks(page, kind):
    """Return the fenced blocks of a page whose opening line is exactly this kind."""
    return re.findall(
        rf"^```{re.escape(kind)}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


def commands(page):
    """Return the commands of a page's blocks of kind ``sh``."""
    return [line for block in blocks(page, "sh") for line in block.splitlines()]


def run(command, monkeypatch, capsys):
    """Run a command of the documentation in this process; return its output, refuse a failure."""
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    out, err = capsys.readouterr()
    assert code == 0, f"{command}\n{err}"
    return out
