"""The fleet file of the how-to is planned and applied as it is printed."""

import json
import sys

from divvy.cli import main
from documented import DOCS, blocks


def run(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["divvy", *words])
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    return code, capsys.readouterr().out


def test_the_howto_plans_and_applies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (text,) = blocks(DOCS / "howto" / "plan-and-apply.md", "toml")
    (tmp_path / "fleet.toml").write_text(text, encoding="utf-8")
    code, out = run(monkeypatch, capsys, "plan", "--fleet", "fleet.toml", "--json")
    assert code == 1
    version = str(json.loads(out)["version"])
    assert run(monkeypatch, capsys, "apply", "--fleet", "fleet.toml", "--version", version)[0] == 0
    assert run(monkeypatch, capsys, "plan", "--fleet", "fleet.toml")[0] == 0
    assert run(monkeypatch, capsys, "apply", "--fleet", "fleet.toml", "--version", version)[0] == 2
