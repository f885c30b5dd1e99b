"""The files on the pages of `divvy serve` are read as they are written."""

from __future__ import annotations

from divvy.adapters.front.keys import read_keys
from documented import DOCS, blocks, commands, run


def test_the_howto_checks_its_own_file(tmp_path, monkeypatch, capsys):
    page = DOCS / "howto" / "serve-triton.md"
    (tmp_path / "backends.json").write_text(blocks(page, "json")[0])
    monkeypatch.chdir(tmp_path)
    [command] = commands(page)
    assert run(command, monkeypatch, capsys).startswith("good: 3 slices of resnet50")


def test_the_tokens_of_the_reference_are_tokens():
    keys = read_keys(blocks(DOCS / "reference" / "serve.md", "toml")[0], "serve.md")
    assert keys.find(b"Bearer test") == ("vision", False)
    assert keys.find(b"Bearer foo") == ("ops", True)
