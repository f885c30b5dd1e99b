"""The examples of the how-to run as they are written."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from divvy.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "replay-a-trace.md"
TEXT = PAGE.read_text(encoding="utf-8")


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, re.DOTALL)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines()]


def test_the_page_has_examples():
    assert len(COMMANDS) >= 8
    assert len(blocks("json")) == len(blocks("toml")) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_works(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("jobs.jsonl").write_text(blocks("json")[0], encoding="utf-8")
    Path("lab.toml").write_text(blocks("toml")[0], encoding="utf-8")
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    main_code = 0
    try:
        main()
    except SystemExit as end:
        main_code = end.code or 0
    out, err = capsys.readouterr()
    assert main_code == 0, err
    assert "fairshare" in out or "fifo" in out
    if "--accounts lab.toml" in command:
        assert "no account claims: speech (1 jobs)" in out
    if "--events" in command:
        assert Path("events.jsonl").stat().st_size > 0
