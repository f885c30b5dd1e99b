"""Input that means nothing, or two things, is refused with a code; nothing ends in a traceback or a guess."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from divvy.adapters.mig.emulator import EmulatedSmi
from divvy.adapters.oip.measure import Server
from divvy.adapters.oip.request import Tensor, build_infer, read_inputs
from divvy.cli.slice_apply import read_plan
from divvy.cli.slice_drift import read_counts
from divvy.cli.slice_inputs import load_profile, make_request, read_file
from divvy.cli.slice_pack import read_scenario
from divvy.cli.slices import verb
from divvy.errors import DivvyError, InputError
from divvy.fleet.mig.parse.instances import parse_lgi
from divvy.fleet.mig.parse.parted import parse_parted
from divvy.fleet.mig.parse.profiles import parse_lgip
from divvy.fleet.mig.skus import find_sku
from divvy.perf.fitted import fitted_profile
from divvy.perf.latency import oddities, size_oddities
from divvy.perf.profile_csv import read_profile
from divvy.perf.traffic import lognormal, parse_batches, read_batches
from divvy.planners.queries.registry import find_rule
from divvy.planners.slices.registry import find_planner
from divvy.sim.queries.stamps import read_gaps

HEAD = "slice,batch,latency_seconds,throughput\n"
GOOD = HEAD + "1,1,0.004,250\n7,1,0.001,1000\n"


def refused(code, read, *arguments):
    with pytest.raises(DivvyError) as caught:
        read(*arguments)
    assert caught.value.code == code, str(caught.value)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("profile-number", HEAD + "1,1,1e-9,0\n"),
        ("profile-number", HEAD + "1,1,4000,0\n"),
        ("profile-number", HEAD + "1,1000000000,0.1,0\n"),
        ("profile-number", HEAD + "1,1_0,0.1,0\n"),
        ("profile-number", "slice,batch,latency,utilisation\n1,1,0.1,150\n"),
        ("profile-slice", HEAD + "\u0663,1,0.1,0\n"),
        ("profile-row", HEAD + '"1,1,0.1,0\n'),
        ("profile-row", HEAD + '"' + "1" * 200_000 + '",1,0.1,0\n'),
        ("profile-column", "slice,batch,batch,latency\n1,1,2,0.1\n"),
        ("profile-column", "slice,batch,latency_ms,latency_seconds\n1,1,2,0.1\n"),
        ("profile-column", "[" * 100_000),
        ("profile-column", "(" + " " * 100_000),
        ("profile-unit", "slice,batch,latency [hours]\n1,1,2\n"),
        ("profile-unit", HEAD + "1,1,4,250\n1,2,6,333\n7,1,1,1000\n"),
    ],
)
def test_a_profile_that_cannot_be_meant(code, text):
    refused(code, read_profile, text, "m", "p.csv")


def test_a_unit_in_the_header_is_used():
    for head in ("latency [ms]", "Latency (ms)", "latency_ms"):
        assert read_profile(f"slice,batch,{head}\n1,1,4\n", "m").latency_us(1, 1) == 4_000
    assert read_profile("slice,batch,latency [us]\n1,1,4\n", "m").latency_us(1, 1) == 4


def test_a_table_that_was_cut_off_is_told_of():
    whole = read_profile(HEAD + "1,1,0.004,0\n1,2,0.006,0\n7,1,0.001,0\n7,2,0.002,0\n", "m")
    assert not [o for o in oddities(whole) if o.code == "not-measured"]
    cut = read_profile(HEAD + "1,1,0.004,0\n1,2,0.006,0\n7,1,0.001,0\n", "m")
    assert [(o.code, o.gpcs, o.batch) for o in oddities(cut)] == [("not-measured", 7, 2)]
    sizes = {(o.code, o.gpcs) for o in size_oddities(read_profile(GOOD + "5,1,0.1,0\n", "m"), (1, 2, 7))}
    assert sizes == {("not-measured", 2), ("no-such-slice", 5)}


@pytest.mark.parametrize(
    "text",
    [
        "lognormal:median=inf",
        "lognormal:median=4,sigma=nan",
        "lognormal:median=4,max=1000000000",
        "lognormal:median=4,median=5",
        "uniform:1-1000000000",
        "uniform:5",
        "uniform:9-3",
        "fixed:0",
        "weights:1=1,1=2",
        "weights:1=1e308,2=1e308",
        "weights:1=nan",
    ],
)
def test_a_distribution_that_cannot_be_meant(text):
    with pytest.raises(InputError):
        parse_batches(text)


def test_a_narrow_distribution_keeps_only_what_occurs():
    assert lognormal(4, 0.01, 32).batches == (4,)


@pytest.mark.parametrize(
    "text",
    [
        "1O\n2\n",
        "1.5\n2\n",
        "1,0.5,9\n",
        '{"1": 1, "1": 2}',
        '{"1": true}',
        '{"1":' + "[" * 99_999,
        '"1\n2\n',
    ],
)
def test_a_file_of_batches_that_cannot_be_meant(text):
    with pytest.raises(InputError):
        read_batches(text, "b")


def test_a_byte_order_mark_changes_nothing():
    assert read_batches("\ufeff1\n2\n", "b").weights == read_batches("1\n2\n", "b").weights
    assert read_batches('\ufeff{"1": 1}', "b").batches == (1,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "TIMESTAMP\n1\n",
        "TIMESTAMP\n5\n5\n",
        "TIMESTAMP,x\n2023-11-16 18:17:03.9,4\n2023-11-16 18:1",
        "TIMESTAMP\n2024-01-01 00:00:00\n2024-01-01 00:00:01+02:00\n",
        '{"timestamp": NaN}\n{"timestamp": 1}\n',
        '{"timestamp": true}\n{"timestamp": 3}\n',
        '{"timestamp": 1}\n{"timesta',
    ],
)
def test_a_trace_that_cannot_be_meant(text):
    refused("arrivals", read_gaps, text, "t")


def test_time_stamps_are_put_in_order():
    assert read_gaps("TIMESTAMP\n9\n-1\n5\n", "t").tolist() == [6, 4]


@pytest.mark.parametrize(
    "objective", [{"slo_ms": float("nan")}, {"slo_ms": 1e300}, {"slo_factor": float("inf")}, {"slo_ms": 0}]
)
def test_an_objective_that_is_none(objective):
    wanted = {"slo_factor": None, "slo_ms": None} | objective
    with pytest.raises(InputError) as caught:
        make_request(
            fitted_profile("bert"),
            find_sku("A100-80GB"),
            1,
            lognormal(4, 0.9, 32),
            percentile=95,
            per_bucket=False,
            **wanted,
        )
    assert caught.value.code == "slo"


def test_names_with_more_behind_them_than_they_have():
    for text in ("random:7", "divvy:foo", "exhaustive:1", "paris:knee", "homogeneous:\u0663"):
        with pytest.raises(InputError):
            find_planner(text)
    for text in ("elsa:alpha=1,alpha=2", "elsa:alpha=-1", "elsa:gamma=1", "divvy:near=nan"):
        refused("dispatcher-parameter", find_rule, text)


@pytest.mark.parametrize(
    ("code", "rows"),
    [
        ("scenario-number", "bert,nan,500\n"),
        ("scenario-number", "bert,5,1e300\n"),
        ("scenario-number", "bert,5_0,500\n"),
        ("scenario-row", "bert,5,500,9\n"),
        ("scenario-row", 'bert,"5,500\n'),
        ("scenario-model", "bert,5,500\nbert,6,500\n"),
    ],
)
def test_a_scenario_that_cannot_be_meant(code, rows):
    known = {"bert": fitted_profile("bert")}
    refused(code, read_scenario, "model,rate_qps,slo_ms\n" + rows, known, "s")


def test_a_scenario_names_every_column_once():
    known = {"bert": fitted_profile("bert")}
    refused("scenario-column", read_scenario, "model,rate_qps,slo_ms,slo_ms\nbert,5,500,9\n", known)
    refused("scenario-column", read_scenario, "model,rate_qps\nbert,5\n", known)


def plan_text(**changes):
    plan = {
        "schema": "divvy.slices.plan/1",
        "sku": "A100-80GB",
        "layout": [{"gpu": 0, "slices": [{"profile": "1g.10gb", "start": 0}]}],
    }
    return json.dumps(plan | changes)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("plan-file", "[" * 99_999),
        ("plan-file", "[]"),
        ("plan-file", '{"schema": "a", "schema": "b"}'),
        ("plan-file", plan_text(schema="divvy.slices.layouts/1")),
        ("plan-file", plan_text(layout=[{"gpu": 0, "slices": [{"profile": "1g.10gb", "start": 1.5}]}])),
        ("plan-file", plan_text(layout=[{"gpu": True, "slices": []}])),
        ("plan-gpus", plan_text(layout=[])),
        ("plan-gpus", plan_text(layout=[{"gpu": 3, "slices": []}])),
        ("plan-gpus", plan_text(layout=[{"gpu": 0, "slices": []}, {"gpu": 0, "slices": []}])),
        ("mig-unknown-profile", plan_text(layout=[{"gpu": 0, "slices": [{"profile": None, "start": 0}]}])),
        ("mig-unknown-sku", plan_text(sku=5)),
    ],
)
def test_a_plan_that_cannot_be_cut(code, text):
    refused(code, read_plan, text, "p")


def test_a_state_of_the_emulator_that_breaks_the_rules():
    sku = find_sku("A100-80GB")
    state = EmulatedSmi(sku, 1, [True]).to_json()
    overlap = [
        {"gpu": 0, "profile": p, "start": 0, "id": i, "computes": 1, "busy": False}
        for i, p in enumerate(("4g.40gb", "1g.10gb"))
    ]
    for change in ({"instances": overlap}, {"gpus": 10**12}, {"sku": "A30-24GB"}, {"gpus": -1}):
        with pytest.raises(ValueError, match=r"place|GPUs|emulates"):
            EmulatedSmi.from_json(state | change, sku)


def test_what_cannot_be_written_down_is_not_begun(tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text(plan_text())
    machine = tmp_path / "machine.json"
    arguments = [
        "apply",
        str(plan),
        "--emulate",
        str(machine),
        "--state",
        str(tmp_path / "no" / "s"),
        "--yes",
    ]
    done = CliRunner().invoke(verb, arguments)
    assert isinstance(done.exception, DivvyError)
    assert done.exception.code == "unwritable"
    assert not machine.exists()


def test_counts_and_numbers_of_drift(tmp_path):
    for text in ("1.5\n", "1_0\n", "1,2,3\n", "0\n", "1,-1\n", ""):
        refused("drift-row", read_counts, text, "seen")
    assert read_counts("batch,count\n4,2\n4\n", "seen") == {4: 3}
    plan, seen = tmp_path / "plan.json", tmp_path / "seen"
    plan.write_text(plan_text(batches={"1": 1.0}, rate_qps=5))
    seen.write_text("1\n")
    for more in (["--rate", "nan"], ["--rate", "5", "--hysteresis", "nan"], ["--rate", "5", "--change", "x"]):
        done = CliRunner().invoke(verb, ["drift", str(plan), "--seen", str(seen), *more])
        assert isinstance(done.exception, InputError)


def test_a_printed_table_without_its_end():
    table = (
        "+----+\n| GPU instances: |\n|====|\n|   0  MIG 1g.5gb   19   7   0:1 |\n+----+\n"
        "|   0  MIG 1g.5gb   19   8   1:1 |\n"
    )
    refused("mig-unreadable", parse_lgi, table)
    assert len(parse_lgi(table + "+----+\n")) == 2
    assert len(parse_lgi(table.partition("\n")[2])) == 2, "a fragment that never had a frame"
    refused("mig-unreadable", parse_lgi, table.replace("1:1", "1:999999999") + "+----+\n")
    rows = "|  0  MIG 1g.5gb  19  7/7  4.75  No  14  0  0 |\n|  1  0  0 |\n"
    refused("mig-unreadable", parse_lgip, "+----+\n" + rows)
    assert len(parse_lgip(rows)) == 1


@pytest.mark.parametrize(
    "devices",
    ['{"1g.5gb": 1, "1g.5gb": 2}', "[1g.5gb]", "2024-99-99", "nonsense"],
)
def test_a_parted_file_that_cannot_be_meant(devices):
    head = "version: v1\nmig-configs:\n  a:\n    - devices: all\n      mig-enabled: true\n"
    with pytest.raises(InputError):
        parse_parted(head + f"      mig-devices: {devices}\n")


def test_a_server_that_answers_nonsense():
    for text in ("<html>", '{"inputs": 3}', "[]", '{"inputs": [{"name": "x"}]}'):
        refused("oip-metadata", read_inputs, text)
    refused("oip-url", Server, "http://[::1", "m")
    refused("oip-size", build_infer, [Tensor("x", "FP32", (-1, 10**9))], 4)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "utf16").write_bytes(GOOD.encode("utf-16"))
    refused("unreadable", read_file, tmp_path / "utf16", "--profile")
    for text in ("", "a\0b", "a" * 5_000):
        with pytest.raises(DivvyError):
            load_profile(text)
