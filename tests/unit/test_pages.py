"""The documentation holds: links lead somewhere, examples run, tables agree with the code."""

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from divvy.cli import verbs
from divvy.cli.bench import BENCHMARKS
from divvy.cli.bench_row import figure
from divvy.errors import InputError
from divvy.fleet.budget import Policy, parse_budget
from documented import DOCS, ROOT, blocks, commands, run

PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
BUDGETS = DOCS / "explanation" / "budgets.md"
BUDGET_FILE = DOCS / "reference" / "budget-file.md"
README = ROOT / "README.md"
ROOMS = "|".join(sorted(path.name for path in (ROOT / "src" / "divvy").iterdir() if path.is_dir()))
#: Verbs that the README says do not exist yet.
MISSING = ("serve", "move", "plan", "apply")


def anchors(page):
    """The anchors that a Markdown page offers, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert not broken


def test_every_page_is_in_the_index():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    pages = [
        path.relative_to(DOCS).as_posix()
        for path in DOCS.rglob("*.md")
        if path.parent.name != "adr" and path.name != "index.md"
    ]
    assert not [page for page in pages if f"({page})" not in index]


def test_every_decision_is_in_its_index():
    index = (DOCS / "adr" / "README.md").read_text(encoding="utf-8")
    decisions = [path.name for path in (DOCS / "adr").glob("[0-9]*.md")]
    assert len(decisions) > 40
    assert not [name for name in decisions if f"({name})" not in index]
    numbers = [name[:4] for name in decisions]
    assert len(set(numbers)) == len(numbers)


def test_no_page_is_unfinished():
    words = re.compile(r"^(TODO|FIXME|TBD|FIGURES|XXX)\b", re.MULTILINE)
    assert not [str(page) for page in PAGES if words.search(page.read_text(encoding="utf-8"))]


def test_files_named_by_the_architecture_exist():
    page = ROOT / "ARCHITECTURE.md"
    text = page.read_text(encoding="utf-8")
    assert text.count("\n") <= 200
    named = set(re.findall(rf"`((?:{ROOMS})/[\w/.]*)", text))
    assert len(named) > 10
    assert not [name for name in named if not (ROOT / "src" / "divvy" / name).exists()]
    table = text.split("## Inside the job planner")[1].split("\n## ")[0]
    files = set(re.findall(r"`(\w+\.py)`", table))
    jobs = {path.name for path in (ROOT / "src" / "divvy" / "planners" / "jobs").glob("[a-z]*.py")}
    assert files == jobs


def test_the_readme_knows_the_verbs():
    text = README.read_text(encoding="utf-8")
    here = set(verbs())
    rows = (line for line in text.splitlines() if line.startswith("| `divvy ") and "| not yet |" in line)
    row = next(rows, "")  # no row once every verb is there
    assert set(re.findall(r"`divvy (\w+)`", row)) == set(MISSING) - here
    used = {line.split()[1] for line in commands(README) if line.startswith("divvy ")}
    used |= {line.split()[2] for block in blocks(README, "console") for line in block.splitlines()}
    assert len(used) > 6
    assert used <= here


#: Commands that another page has as well are run there.
ONLY_HERE = [line for line in commands(README) if line not in commands(DOCS / "howto" / "replay-a-trace.md")]


@pytest.mark.parametrize("command", ONLY_HERE)
def test_a_command_of_the_readme_works(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("machine.txt").write_text(blocks(README, "text file=machine.txt")[0], encoding="utf-8")
    assert run(command, monkeypatch, capsys).strip()


@pytest.mark.parametrize("page", [BUDGETS, BUDGET_FILE], ids=["explanation", "reference"])
def test_settings_are_told_with_their_defaults(page):
    rows = re.findall(
        r"^\| `(\w+)` \|(?: [a-z][^|]*\|)? `([^`]*)` \|", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    told = dict(rows)
    document = {key: str(value).lower() for key, value in Policy().to_document().items()}
    assert {item.name for item in fields(Policy)} == set(document)
    assert {key: told.get(key) for key in document} == document


def test_the_budget_files_of_the_pages_are_read():
    good = [*blocks(BUDGETS, "toml"), *blocks(BUDGET_FILE, "toml")]
    assert len(good) == 2
    paths = [parse_budget(text).tree.paths for text in good]
    assert "lab.vision.maps" in paths[1]


def test_the_faults_of_the_reference_are_those_of_the_code():
    with pytest.raises(InputError) as caught:
        parse_budget(blocks(BUDGET_FILE, "toml fault")[0])
    found = [f"{fault.path}: {fault.message}" for fault in caught.value.faults]
    assert found == blocks(BUDGET_FILE, "text")[0].splitlines()


def test_the_fault_codes_of_the_reference_are_those_of_the_code():
    fleet = ROOT / "src" / "divvy" / "fleet"
    source = "".join((fleet / name).read_text() for name in ("budget.py", "account.py", "account_file.py"))
    table = BUDGET_FILE.read_text(encoding="utf-8").split("## Faults")[1]
    told = set(re.findall(r"`((?:budget|policy|share|account|accounts)-[a-z]+)`", table))
    used = set(re.findall(r'"((?:budget|policy|share|account|accounts)-[a-z]+)"', source))
    assert told == used - {"account-unknown", "account-not-leaf"}  # about jobs, not about the file


@pytest.mark.parametrize("command", commands(BUDGETS))
def test_the_example_of_the_policy_happens(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("lab.toml").write_text(blocks(BUDGETS, "toml")[0], encoding="utf-8")
    jobs = blocks(BUDGETS, "json")[0]
    Path("jobs.jsonl").write_text(jobs, encoding="utf-8")
    run(command, monkeypatch, capsys)
    if "--events" not in command:
        return
    events = [json.loads(line) for line in Path("events.jsonl").read_text().splitlines()]
    start = next(event for event in events if event["event"] == "start" and event["job"] == "l1")
    out = next(event for event in events if event["event"] == "preempt")
    assert start["t"] == out["t"] == 13 * 3600 + 300
    assert out["account"] == "lab.vision" and out["by"] == "l1" and out["requeued"]
    Path("jobs.jsonl").write_text(jobs.replace("46800", "36000"), encoding="utf-8")
    run(command, monkeypatch, capsys)
    events = [json.loads(line) for line in Path("events.jsonl").read_text().splitlines()]
    start = next(event for event in events if event["event"] == "start" and event["job"] == "l1")
    assert start["t"] == 12 * 3600


def test_the_row_of_a_benchmark_is_told():
    told = re.findall(
        r"^\| `(\w+)` \|", (DOCS / "reference" / "bench.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert told == [*BENCHMARKS, *figure("", "", None, "")]


def test_the_locks_hold_every_dependency_and_no_address():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    names = lambda listed: {re.match(r"[\w.-]+", one)[0].lower() for one in listed}  # noqa: E731
    run_needs = names(project["project"]["dependencies"]) | names(project["build-system"]["requires"])
    extras = {extra: names(listed) for extra, listed in project["project"]["optional-dependencies"].items()}
    apart = {"ray": "engines.txt", "nixl": "bare.txt"}  # large, and of use to their own tests only
    for extra, listed in extras.items():
        run_needs |= set() if extra in apart else listed
    dev_needs = run_needs | names(project["dependency-groups"]["dev"])
    locks = [("run.txt", run_needs), ("dev.txt", dev_needs)]
    for file, needs in (*locks, *((file, extras[extra]) for extra, file in apart.items())):
        text = (ROOT / "requirements" / file).read_text(encoding="utf-8")
        locked = set(re.findall(r"^([a-z0-9._-]+)==", text, re.MULTILINE))
        assert needs <= locked, f"run `make lock`: {sorted(needs - locked)}"
        assert "://" not in text
