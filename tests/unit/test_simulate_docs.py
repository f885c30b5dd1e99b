"""The examples of the how-to run as they are written."""

from pathlib import Path

import pytest

from documented import DOCS, blocks, commands, run

PAGE = DOCS / "howto" / "replay-a-trace.md"


def test_the_page_has_examples():
    assert len(commands(PAGE)) >= 8
    assert len(blocks(PAGE, "json")) == len(blocks(PAGE, "toml")) == 1


@pytest.mark.parametrize("command", commands(PAGE))
def test_a_command_of_the_page_works(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("jobs.jsonl").write_text(blocks(PAGE, "json")[0], encoding="utf-8")
    Path("lab.toml").write_text(blocks(PAGE, "toml")[0], encoding="utf-8")
    out = run(command, monkeypatch, capsys)
    assert "fairshare" in out or "fifo" in out
    if "--accounts lab.toml" in command:
        assert "no account claims: speech (1 jobs)" in out
    if "--events" in command:
        assert Path("events.jsonl").stat().st_size > 0
