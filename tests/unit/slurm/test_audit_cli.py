"""The verb: its outputs, its refusals, its documentation."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import jsonschema
import pytest

from divvy.cli import app, audit_text, bench_audit
from divvy.cli.audit_charts import series, waits
from divvy.cli.audit_page import page
from divvy.cli.render import Screen
from divvy.errors import InputError
from documented import DOCS, blocks, commands, run

HOWTO = DOCS / "howto" / "audit-slurm.md"
REFERENCE = DOCS / "reference" / "audit.md"
SCHEMAS = DOCS / "reference" / "schemas"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory with the files of the how-to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    Path("budgets.toml").write_text(blocks(HOWTO, "toml")[0], encoding="utf-8")
    Path("sacct.txt").write_text(blocks(HOWTO, "text sacct")[0], encoding="utf-8")
    Path("nodes.txt").write_text(blocks(HOWTO, "text nodes")[0], encoding="utf-8")
    return tmp_path


def divvy(words, monkeypatch, capsys):
    return run(f"divvy audit {words}", monkeypatch, capsys)


def schema(name):
    return json.loads((SCHEMAS / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", commands(HOWTO))
def test_a_command_of_the_how_to_works(command, folder, monkeypatch, capsys):
    out = run(command, monkeypatch, capsys)
    if "--json" in command:
        assert json.loads(out)["rows_skipped"] == 0
        assert len(Path("jobs.jsonl").read_text().splitlines()) == 5
    elif "--html" in command:
        assert Path("report.html").stat().st_size > 5_000
    else:
        assert "7 rows read: 5 jobs, 0 steps, 2 nodes, 0 told twice, 0 not understood" in out


def test_the_example_says_what_the_how_to_says(folder, monkeypatch, capsys):
    out = divvy("sacct.txt nodes.txt --budgets budgets.toml --json --jobs j --tz UTC", monkeypatch, capsys)
    report = json.loads(out)
    jsonschema.validate(report, schema("audit.1.json"))
    accounts = {account["account"]: account for account in report["accounts"]}
    assert accounts["unfunded"]["lost_gpu_hours"] == 2 and [u["name"] for u in report["unclaimed"]] == [
        "guest"
    ]
    assert accounts["lab.robots"]["squatting_gpu_hours"] == 16
    lines = [json.loads(line) for line in Path("j").read_text().splitlines()]
    for line in lines:
        jsonschema.validate(line, schema("audit.job.1.json"))
    assert [line["line"] for line in lines] == [2, 3, 4, 5, 6]
    assert lines[0] | {"file": ""} == {
        "job": "101", "account": "vis", "user": "ada", "gpus": 8, "gpu_model": "a100", "submit": 1740988800,
        "start": 1740988800, "end": 1741010400, "state": "COMPLETED", "limit_s": 86400, "line": 2, "file": "",
    }  # fmt: skip


def test_the_reference_shows_a_line_of_jobs_as_it_is():
    line = json.loads(blocks(REFERENCE, "json")[0])
    jsonschema.validate(line, schema("audit.job.1.json"))
    assert list(line) == list(schema("audit.job.1.json")["properties"])[:-1]


def test_the_reference_knows_every_code_and_option(monkeypatch, capsys):
    text = REFERENCE.read_text(encoding="utf-8")
    root = DOCS.parent / "src" / "divvy"
    files = [
        *(root / "adapters" / "slurm" / "accounting").glob("*.py"),
        *(root / "control" / "audit").glob("*.py"),
    ]
    files.append(root / "adapters" / "slurm" / "tres.py")
    words = {
        w for file in files for w in re.findall(r'"([a-z]+(?:-[a-z]+)+)"', file.read_text(encoding="utf-8"))
    }
    options_of_sbatch = {word for word in words if "-per-" in word or word in ("tres-alloc", "utf-sig")}
    refusals = {
        "account-unfunded",
        "file-empty",
        "file-unreadable",
        "format-unknown",
        "period-empty",
        "period-long",
    }
    used = words - options_of_sbatch - refusals - {"zone-unknown"}
    assert len(used) > 20
    assert not [word for word in used if f"`{word}`" not in text]
    options = set(re.findall(r"--[a-z-]+", divvy("--help", monkeypatch, capsys)))
    assert not [option for option in options - {"--help"} if option not in text]


def test_standard_input_and_quiet(folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path("sacct.txt").read_bytes())))
    out = divvy("- --budgets budgets.toml -q", monkeypatch, capsys)
    assert out.split() == ["lab", "lab.vision", "lab.language", "lab.robots", "unfunded"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("none.txt", "file-unreadable"),
        ("none.txt ./", "file-unreadable"),
        ("sacct.txt --budgets none.toml", "budget-unreadable"),
        ("sacct.txt --budgets sacct.txt", "budget-syntax"),
        ("sacct.txt --from yesterday", "time-format"),
        ("sacct.txt --from 2025-03-05 --to 2025-03-04", "period-empty"),
        ("sacct.txt --tz Nowhere/City", "zone-unknown"),
        ("sacct.txt --jobs sacct.txt", "output-is-input"),
        ("sacct.txt --html none/x.html", "output-unwritable"),
        ("empty.txt", "file-empty"),
        ("budgets.toml", "format-unknown"),
        ("sacct.txt --format json", "format-unknown"),
    ],
)
def test_what_cannot_be_done_is_refused(words, code, folder, monkeypatch, capsys):
    Path("empty.txt").touch()
    before = Path("sacct.txt").read_bytes()
    monkeypatch.setattr(sys, "argv", ["divvy", "audit", *words.split()])
    with pytest.raises(InputError) as error:
        app(prog_name="divvy", standalone_mode=False)
    assert error.value.code == code and Path("sacct.txt").read_bytes() == before


def hostile_report(folder, monkeypatch, capsys):
    evil = "<script>alert(1)</script>\x1b[31m\u202e"
    text = Path("sacct.txt").read_text(encoding="utf-8").replace("guest", evil).replace("|cy|", f"|{evil}|")
    Path("evil.txt").write_text(text.replace("TIMEOUT", "<i>FOO") + "junk<b>\n", encoding="utf-8")
    return json.loads(divvy("evil.txt --json --budgets budgets.toml --html evil.html", monkeypatch, capsys))


def test_names_can_do_nothing_on_the_page_and_the_screen(folder, monkeypatch, capsys):
    report = hostile_report(folder, monkeypatch, capsys)
    html = Path("evil.html").read_text(encoding="utf-8")
    assert "<script" not in html and "\x1b" not in html and "\u202e" not in html and "&lt;script&gt;" in html
    assert "http" not in re.sub(r"http://www\.w3\.org\S*", "", html), "nothing comes from elsewhere"
    stream = io.StringIO()
    audit_text.show(Screen(stream), report, None, None)
    assert "\x1b" not in stream.getvalue()


def test_a_page_of_nothing_and_of_much(folder, monkeypatch, capsys):
    report = json.loads(divvy("nodes.txt --json", monkeypatch, capsys))
    assert "No account was owed" in page(report)
    Path("big.txt").write_text("", encoding="utf-8")
    with Path("big.txt").open("w", encoding="utf-8") as out:
        gpus = bench_audit.write_accounting(out, 2_000)
    report = json.loads(divvy("big.txt --json --tz UTC --jobs j", monkeypatch, capsys))
    assert (report["rows_read"], report["rows_skipped"], report["warnings"]) == (2_000, 0, [])
    assert sum(json.loads(line)["gpus"] for line in Path("j").read_text().splitlines()) == gpus
    html = page(report)
    assert html.count("<svg") > 40 and "and 16 more accounts" in html
    stream = io.StringIO()
    audit_text.show(Screen(stream), report, None, None)
    assert "waits of the other accounts" in stream.getvalue()


def test_plots_say_where_there_is_nothing():
    assert "no hours" in series({"account": "a", "hours": None}) and "no job" in waits([])


def test_the_benchmark_has_its_rows():
    rows = list(bench_audit.rows(quick=True, announce=lambda _: None))
    found = {row["measure"]: row for row in rows}
    assert found["rows read"]["value"] == 50_000 and found["rows not understood"]["value"] == 0
    assert found["GPUs counted less those written"]["value"] == 0 and found["wall clock"]["value"] > 0
    assert found["wall clock"]["met"] is None, "a smaller run meets nothing"
