"""Reports, pictures and Perfetto traces: what they show is what happened."""

import gzip
import json
import re
from itertools import pairwise

import pytest
import typer
from typer.testing import CliRunner

from divvy.cli import simulate
from divvy.cli.simulate_files import make_directory, read_part, write_bytes
from divvy.cli.simulate_plots import pictures
from divvy.errors import InputError
from divvy.planners.jobs.registry import create
from divvy.sim.accounts import equal_shares
from divvy.sim.measures import Window, measure
from divvy.sim.perfetto import trace_of
from divvy.sim.replay import replay
from divvy.sim.scenario import Scenario, build_fleet
from divvy.sim.series import blocks, by_day, holdings, waits_by_size
from divvy.sim.traces.trace import Trace, TraceJob
from divvy.units import DAY, HOUR, MINUTE, gpu_hours

JOBS = tuple(
    TraceJob(f"j{n:03d}", n * 15 * MINUTE, (1 + n % 6) * HOUR, (1, 2, 4, 8)[n % 4], ("red", "blue|x")[n % 2])
    for n in range(200)
)
WINDOW = Window(6 * HOUR, 2 * DAY)


@pytest.fixture(scope="module")
def done():
    trace = Trace(JOBS)
    budget, claims = equal_shares(trace)
    return replay(Scenario(trace, build_fleet(None, "2x8"), budget, claims), create("budget"))


def test_what_accounts_hold_adds_up_to_what_was_occupied(done):
    held, figures = holdings(done, WINDOW), measure(done, WINDOW)
    lengths = (held.edges[1:] - held.edges[:-1]) / HOUR
    total = sum(float((series * lengths).sum()) for series in (*held.charged.values(), held.free))
    assert total == pytest.approx(figures.occupied)
    assert float((held.capacity * lengths).sum()) == pytest.approx(figures.capacity)
    assert (held.demand >= sum(held.charged.values()) + held.free - 1e-9).all()


def test_days_add_up_to_the_accounts_of_the_report(done):
    due, figures = by_day(done, WINDOW), measure(done, WINDOW)
    for account in figures.accounts:
        assert gpu_hours(due[account.account].owed.sum()) == pytest.approx(account.owed)
        assert gpu_hours(due[account.account].delivered.sum()) == pytest.approx(account.delivered)


def test_waits_by_size_are_all_waits(done):
    classes = waits_by_size(done, WINDOW)
    assert sum(map(len, classes.values())) == measure(done, WINDOW).waits["all"].n
    assert list(classes) == ["1", "2", "3-4", "5-8"]


def test_no_device_has_two_runs_at_once(done):
    record = done.record
    lanes = {}
    for block in blocks(done, Window(0, done.end)):
        assert 0 <= block.lane < 8
        lanes.setdefault((block.node, block.lane), []).append(
            (record.start[block.run], record.end[block.run])
        )
    for spans in lanes.values():
        spans.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(spans))
    shown = sum(end - start for spans in lanes.values() for start, end in spans)
    assert shown == sum(
        done.workload.spec[row].gpus * (record.end[n] - record.start[n]) for n, row in enumerate(record.job)
    )


def test_a_trace_shows_its_window_and_keeps_to_its_cap(done):
    part = Window(8 * HOUR, 16 * HOUR)
    whole = trace_of(done, part)
    slices = [event for event in whole["traceEvents"] if event["ph"] == "X"]
    assert whole["otherData"]["left_out"] == 0 and len(slices) == whole["otherData"]["slices"]
    assert min(event["ts"] for event in slices) >= 8 * 3600 * 10**6
    assert max(event["ts"] + event["dur"] for event in slices) <= 16 * 3600 * 10**6
    held = sum(event["dur"] for event in slices) / 3600e6
    assert held == pytest.approx(measure(done, part).occupied)
    few = trace_of(done, part, 10)
    kept = [event for event in few["traceEvents"] if event["ph"] == "X"]
    assert len(kept) == 10 and few["otherData"]["left_out"] == len(slices) - 10
    names = {event["args"]["name"] for event in whole["traceEvents"] if event["name"] == "process_name"}
    assert {"node1", "node2"} < names
    json.dumps(whole, allow_nan=False)


@pytest.mark.parametrize("text", ["7d", "8d..7d", "a..b", "..", "1d..1d"])
def test_a_window_that_is_none_is_refused(text):
    with pytest.raises(InputError) as caught:
        read_part(text)
    assert caught.value.code == "perfetto-window"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    place = tmp_path_factory.mktemp("report")
    lines = [
        {"submit": job.submit / 1000, "runtime": job.runtime / 1000, "gpus": job.gpus, "account": job.account}
        for job in JOBS[:120]
    ]
    (place / "jobs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (place / "lab.toml").write_text(
        '[accounts.red]\nshare = 80\n[accounts.blue]\nshare = 20\nslurm = ["blue|x"]\n'
    )
    app = simulate.verb
    cli = typer.Typer(rich_markup_mode=None)
    cli.command()(app)
    result = CliRunner().invoke(
        cli,
        [
            str(place / "jobs.jsonl"), "--nodes", "2x8", "--policy", "kueue", "--warmup", "0", "--json",
            "--accounts", str(place / "lab.toml"), "--accounts", "equal",
            "--report", str(place / "out"), "--perfetto", str(place / "trace.json.gz"),
        ],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return place, json.loads(result.stdout)


def test_the_document_of_a_question(written):
    _, document = written
    assert document["schema"] == "divvy.simulate.whatif/1"
    assert [report["accounts"] for report in document["reports"]] == ["lab.toml", "equal"]
    assert [(entry["policy"], entry["accounts"], entry["against"]) for entry in document["whatif"]] == [
        ("kueue", "equal", "lab.toml")
    ]
    for report in document["reports"]:
        label = {entry["policy"]: entry["documented"]["label"] for entry in report["policies"]}
        assert label == {"kueue": "the documented rule, re-implemented"}


def test_the_report_has_its_pictures_and_no_broken_link(written):
    place, document = written
    text = (place / "out" / "report.md").read_text()
    links = re.findall(r"\(([^()\s]+\.(?:png|svg))\)", text)
    assert len(links) == 2 * 4 * 2
    for link in links:
        data = (place / "out" / link).read_bytes()
        if link.endswith("png"):
            assert data.startswith(b"\x89PNG")
        else:
            assert data.startswith(b"<?xml") and data.rstrip().endswith(b"</svg>")
    assert "What this does not say" in text and "What if: lab.toml → equal, kueue" in text
    owed = document["reports"][0]["policies"][0]["delivered_over_owed"]["period"]
    assert f"{owed:.1%}" in text
    page = (place / "out" / "report.html").read_text()
    assert page.count("<img") == 8 and "<script" not in page
    assert page.count("<table") == text.count("| --- |")
    assert not re.search(r'(?:src|href)="https?:', page)


def test_the_same_replay_gives_the_same_bytes(done):
    assert pictures(done, WINDOW) == pictures(done, WINDOW)


def test_every_replay_has_a_trace_that_can_be_opened(written):
    place, _ = written
    files = sorted(path.name for path in place.glob("trace.*.json.gz"))
    assert files == ["trace.equal.kueue.0.json.gz", "trace.lab.toml.kueue.0.json.gz"]
    for name in files:
        document = json.loads(gzip.decompress((place / name).read_bytes()))
        assert document["otherData"]["slices"] > 0


def test_two_budgets_of_one_name_are_refused():
    with pytest.raises(InputError, match="named twice"):
        simulate.build_scenarios(
            simulate.Choice("reclaim", "auto", None, None, "honest", "none", "30m", "fail"),
            ["equal", "equal"],
        )


def test_a_report_that_cannot_be_written_is_refused_before_anything_takes_long(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError) as caught:
        make_directory(tmp_path / "taken" / "pictures", "--report")
    assert caught.value.code == "report-file"
    with pytest.raises(InputError) as caught:
        write_bytes(tmp_path / "nowhere" / "trace.json.gz", b"", "--perfetto")
    assert caught.value.code == "perfetto-file"
