import csv
import io
import json
import time
from itertools import pairwise

import pytest

from divvy.cli.moment import moment
from divvy.cli.statement_file import check_ending, csv_text, render, write
from divvy.control.facts import Adjustment, Capacity, Demand, Epoch, Occupancy
from divvy.control.hourly import ranges
from divvy.control.statement import make_statement
from divvy.control.statement_document import document
from divvy.errors import InputError
from divvy.fleet.budget import parse_budget
from divvy.units import HOUR, MINUTE

TREE = parse_budget(
    """
[accounts.lab]
share = 90
[accounts.lab.vision]
share = 60
[accounts.lab.language]
share = 40
[accounts.ops]
share = 10
"""
).tree
T0 = 500_000 * HOUR
ADDITIVE = ("demand", "owed", "delivered", "carried", "unallocated", "protected", "lost", "adjustments")


def run(account, begin, end, gpus, entry, **rest):
    allocated = rest.pop("allocated", True)
    lost = rest.pop("lost", 0)
    return Occupancy(
        account, begin, end, gpus, gpus * 3, allocated, lost, HOUR, entry=entry, job=f"j{entry}", attempt=1,
        **rest,
    )  # fmt: skip


@pytest.fixture
def told():
    demands = [
        Demand("lab.vision", T0 + 10 * MINUTE, T0 + 4 * HOUR, 12, "j1"),
        Demand("lab.language", T0, T0 + 90 * MINUTE, 3, "j2"),
        Demand("ops", T0, T0 + 5 * HOUR, 1, "j4"),
    ]
    runs = [
        run("lab.vision", T0 + 20 * MINUTE, T0 + 150 * MINUTE, 8, 1, protected=HOUR, lost=7 * MINUTE),
        run("lab.language", T0, T0 + 61 * MINUTE, 2, 2, allocated=False),
        run("ops", T0 + HOUR, T0 + 3 * HOUR, 1, 4, restore=3 * MINUTE, protected=HOUR),
        run("lab.vision", T0 + 200 * MINUTE, T0 + 5 * HOUR, 8, 0, protected=HOUR),
    ]
    steps = [Capacity(0, 10), Capacity(T0 + 3 * HOUR + 12 * MINUTE, 6)]
    refund = [Adjustment("lab.vision", T0 + 100 * MINUTE, -3 * HOUR, "node failed", 3)]
    made = make_statement(
        T0, T0 + 5 * HOUR, [Epoch(0, TREE)], steps, demands, runs, refund, mean_weight=3.0, listed=True
    )
    return document(made, hours=True, notes=["a note"], sources=True)


def rows(told):
    return {row["account"]: row for row in told["rows"]}


def test_every_figure_of_an_account_is_the_sum_of_its_children_in_every_hour(told):
    found = rows(told)
    for above, below in {"lab": ("lab.vision", "lab.language")}.items():
        for hour, *parts in zip(found[above]["hours"], *(found[one]["hours"] for one in below), strict=True):
            for name in ADDITIVE:
                assert hour[name] == pytest.approx(sum(part[name] for part in parts), abs=1e-12), name
    for name in ADDITIVE:
        column = f"{name}_gpu_hours"
        assert told["totals"][column] == pytest.approx(found["lab"][column] + found["ops"][column])


def test_the_figures_of_an_hour_sum_to_those_of_the_period(told):
    for row in told["rows"]:
        for name in ("capacity", "demand", "owed", "delivered", "unallocated", "protected", "lost"):
            assert row[f"{name}_gpu_hours"] == pytest.approx(sum(hour[name] for hour in row["hours"]))
        assert row["carried_gpu_hours"] == row["hours"][-1]["carried"]


def overlap(begin, end, one, other):
    return max(min(end, other) - max(begin, one), 0.0) / 3600


def test_a_stranger_recomputes_every_hour_from_the_sources_alone(told):
    sources = told["sources"]
    shares = sources["shares"][0]["shares"]
    steps = [*sources["capacity"], {"at": told["to_at"], "gpus": 0}]
    for row in (row for row in told["rows"] if row["leaf"]):
        mine = [one for one in sources["runs"] if one["account"] == row["account"]]
        for hour in row["hours"]:
            one, other = hour["at"], hour["at"] + 3600

            def integral(items, other=other, one=one):
                return sum(gpus * overlap(begin, end, one, other) for begin, end, gpus in items)

            capacity = integral((a["at"], b["at"], a["gpus"]) for a, b in pairwise(steps))
            demand = integral(
                (d["from_at"], d["to_at"], d["gpus"])
                for d in sources["demand"]
                if d["account"] == row["account"]
            )
            charged = [r for r in mine if r["allocated"]]
            useful = integral(
                (r["from_at"] + r["restore_seconds"], r["to_at"] - r["lost_seconds"], r["gpus"])
                for r in charged
            )
            held = integral((r["from_at"], r["to_at"], r["gpus"]) for r in charged)
            guarded = integral(
                (r["from_at"], r["from_at"] + r["protected_seconds"], r["gpus"]) for r in charged
            )
            free = integral((r["from_at"], r["to_at"], r["gpus"]) for r in mine if not r["allocated"])
            assert hour["capacity"] == pytest.approx(capacity)
            assert hour["demand"] == pytest.approx(demand)
            assert hour["owed"] == pytest.approx(min(shares[row["account"]] * capacity, demand), abs=1e-6)
            assert hour["delivered"] == pytest.approx(useful)
            assert hour["lost"] == pytest.approx(held - useful)
            assert hour["protected"] == pytest.approx(guarded)
            assert hour["unallocated"] == pytest.approx(free)
            ids = sorted(r["id"] for r in mine if r["id"] and overlap(r["from_at"], r["to_at"], one, other))
            extra = [e["id"] for e in row["entries"] if one <= e["at"] < other]
            assert hour["ledger"]["ids"] == ranges([*ids, *extra])
            assert hour["ledger"]["count"] == len(ids) + len(extra)
        assert row["charged"] == sum(r["charge"] for r in mine if r["allocated"])


def test_a_run_that_is_not_over_is_named_and_an_adjustment_stands_in_its_hour(told):
    found = rows(told)
    assert found["lab"]["running"] == found["lab.vision"]["running"] == ["j0/1"]
    assert [hour["adjustments"] for hour in found["lab.vision"]["hours"]] == [0, -1.0, 0, 0, 0]
    assert found["lab"]["entries"][0]["id"] == 3


def test_the_csv_has_a_line_per_account_and_hour_that_reads_back(told):
    lines = list(csv.DictReader(io.StringIO(csv_text(told))))
    assert len(lines) == 4 * 5
    first = next(line for line in lines if line["account"] == "lab.vision")
    assert first["at"] == "2027-01-15T08:00:00Z"
    assert float(first["owed"]) == rows(told)["lab.vision"]["hours"][0]["owed"]
    assert csv_text(told, unix=False).splitlines()[1].split(",")[2] == ""


def test_the_page_is_one_file_without_scripts_and_escapes_what_people_wrote(told):
    told["rows"][1]["account"] = "lab.<script>alert(1)</script>"
    told["notes"] = ["<img src=x>"]
    text = render(told, ".html", unix=True)
    assert "<script" not in text
    assert "<img" not in text
    assert "http://" not in text
    assert "https://" not in text
    assert "prefers-color-scheme:dark" in text
    assert text.count("<svg") >= 3


def test_json_is_the_document(told):
    assert json.loads(render(told, ".json", unix=True)) == told


def test_a_cell_is_never_a_formula(told):
    told["rows"][0]["account"] = "=1+2"
    assert "'=1+2" in csv_text(told)


def test_files_are_written_whole_or_not_at_all(tmp_path):
    write(tmp_path / "a.csv", "x\n", "--output")
    assert (tmp_path / "a.csv").read_text() == "x\n"
    with pytest.raises(InputError, match="No such file"):
        write(tmp_path / "no" / "a.csv", "x", "--output")
    with pytest.raises(InputError, match="names no format"):
        check_ending(tmp_path / "a.pdf", "--output")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_ranges():
    assert ranges([9, 3, 4, 5, 7, 5]) == "3-5,7,9"
    assert ranges([]) == ""


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_times_where_the_clocks_are_set():
    assert moment("2026-10-25", "--from", 0) == 1_792_879_200.0, "midnight of summer time"
    assert moment("2026-10-26", "--to", 0) - moment("2026-10-25", "--from", 0) == 25 * 3600
    assert moment("2026-03-29T01:59", "--from", 0) + 60 == moment("2026-03-29T03:00", "--from", 0)
    with pytest.raises(InputError) as twice:
        moment("2026-10-25T02:30", "--from", 0)
    assert twice.value.code == "time-twice"
    assert "2026-10-25T02:30+02:00 or 2026-10-25T02:30+01:00" in str(twice.value)
    with pytest.raises(InputError) as missing:
        moment("2026-03-29 02:30", "--to", 0)
    assert missing.value.code == "time-missing"
    assert moment("2026-10-25T02:30+01:00", "--from", 0) == moment("2026-10-25T01:30Z", "--from", 0)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01", "99999999-01-01", "-3d", "NaN", "2026-02-30"]
)
def test_what_is_no_time_is_refused_with_what_is(text):
    with pytest.raises(InputError) as refused:
        moment(text, "--from", 0)
    assert refused.value.code == "time-format"
