"""Changing slices: what stays, safe order, the emulator's refusals, crashes half-way, drift and its price."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from divvy.adapters.mig.carry_out import carry_out, layouts_of
from divvy.adapters.mig.emulator import Crash, EmulatedSmi
from divvy.adapters.mig.nvml import NvmlDriver
from divvy.adapters.mig.smi import SmiDriver, run_command
from divvy.cli.slices import verb
from divvy.errors import ConflictError, EngineError, InputError
from divvy.fleet.mig.change import change_from_json, change_to_json, plan_change
from divvy.fleet.mig.layout import all_layouts, faults, maximal_layouts, multiset
from divvy.fleet.mig.parse.instances import parse_transcript
from divvy.fleet.mig.parse.profiles import parse_lgip, parse_lgipp
from divvy.fleet.mig.skus import find_sku
from divvy.perf.traffic import from_weights
from divvy.planners.slices.drift import detect, worth_it

A100 = find_sku("A100-80GB")
LAYOUTS = all_layouts(A100)


def smi(machine, command):
    return machine(command.split())


def machine_with(gpus, layouts):
    machine = EmulatedSmi(A100, gpus)
    for gpu, layout in enumerate(layouts):
        smi(machine, f"nvidia-smi -i {gpu} -mig 1")
        for p in layout:
            code, _ = smi(machine, f"nvidia-smi mig -i {gpu} -cgi {p.profile}:{p.start} -C")
            assert code == 0
    return machine


def test_the_emulator_places_greedily_and_leaves_the_first_ones_there():
    machine = machine_with(1, [()])
    code, said = smi(machine, "nvidia-smi mig -i 0 -cgi 19,19,14,9 -C")
    assert code != 0
    assert "Insufficient Resources" in said
    assert [(p.profile, p.start) for p in machine.placed(0)] == [
        ("2g.20gb", 2),
        ("1g.10gb", 5),
        ("1g.10gb", 6),
    ]
    acts = parse_transcript(said)
    assert [act.succeeded for act in acts] == [True] * 6 + [False, False]
    other = machine_with(1, [()])
    assert smi(other, "nvidia-smi mig -i 0 -cgi 9,14,19,19 -C")[0] == 0


def test_the_emulator_refuses_as_drivers_do():
    machine = EmulatedSmi(A100, 1)
    assert "disabled" in smi(machine, "nvidia-smi mig -i 0 -cgi 9")[1]
    machine = machine_with(1, [maximal_layouts(A100)[0]])
    assert "In use by another client" in smi(machine, "nvidia-smi mig -i 0 -dgi")[1], (
        "compute instances first"
    )
    assert "In use by another client" in smi(machine, "nvidia-smi -i 0 -mig 0")[1]
    machine.mark_busy(0, 0)
    assert "In use by another client" in smi(machine, "nvidia-smi mig -i 0 -dci")[1]
    machine.mark_busy(0, 0, busy=False)
    assert smi(machine, "nvidia-smi mig -i 0 -dci")[0] == 0
    assert smi(machine, "nvidia-smi mig -i 0 -dgi")[0] == 0
    assert "No GPU instances found" in smi(machine, "nvidia-smi mig -lgi")[1]
    assert smi(machine, "nvidia-smi mig -i 7 -lgi")[0] != 0
    assert "Invalid Argument" in smi(machine, "nvidia-smi mig -i 0 -cgi 9g.1gb")[1]


def test_the_emulators_listings_are_read_by_the_parsers():
    machine = machine_with(1, [(A100.at("3g.40gb", 4),)])
    rows = parse_lgip(smi(machine, "nvidia-smi mig -i 0 -lgip")[1])
    assert {r.name: (r.free, r.total) for r in rows}["3g.40gb"] == (1, 2)
    assert len(parse_lgipp(smi(machine, "nvidia-smi mig -i 0 -lgipp")[1])) == len(A100.profiles)
    driver = SmiDriver(machine)
    assert [p.name for p in driver.sku(0).base_profiles] == [p.name for p in A100.base_profiles]
    assert [(p.profile, p.start) for p in driver.instances()] == [("3g.40gb", 4)]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)), min_size=1, max_size=3))
def test_a_change_ends_with_what_was_wanted_and_touches_nothing_that_stays(pairs):
    now, wanted = [old for old, _ in pairs], [new for _, new in pairs]
    change, ends = plan_change(A100, now, wanted)
    assert sorted(map(multiset, ends)) == sorted(map(multiset, wanted))
    machine = machine_with(len(pairs), now)
    carry_out(SmiDriver(machine), change)
    after = layouts_of(A100, SmiDriver(machine).instances(), len(pairs))
    assert after == ends
    for gpu, stay in enumerate(change.kept):
        assert faults(A100, after[gpu]) == []
        assert all(p in now[gpu] and p in after[gpu] for p in stay)
        assert all(step.placement not in stay for step in change.steps if step.gpu == gpu)
    assert plan_change(A100, after, wanted)[0].steps == ()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS), st.integers(0, 25))
def test_a_crash_half_way_is_survived(old, new, after):
    change, (end,) = plan_change(A100, [old], [new])
    machine = machine_with(1, [old])
    machine.crash_after = after
    kept = [change]
    try:
        carry_out(SmiDriver(machine), change, keep=kept.append)
    except Crash:
        machine.crash_after = None
        again = change_from_json(json.loads(json.dumps(change_to_json(kept[-1]))), A100)
        carry_out(SmiDriver(machine), again)
    assert tuple(machine.placed(0)) == end
    driver = SmiDriver(machine)
    assert len(driver.instances()) == len(end)


def test_a_busy_slice_stops_the_change_which_goes_on_later():
    old, new = (A100.at("7g.80gb", 0),), (A100.at("3g.40gb", 0), A100.at("3g.40gb", 4))
    machine = machine_with(1, [old])
    machine.mark_busy(0, 0)
    change, _ = plan_change(A100, [old], [new])
    kept = [change]
    with pytest.raises(EngineError, match="In use by another client") as caught:
        carry_out(SmiDriver(machine), change, keep=kept.append)
    assert caught.value.code == "mig-in-use"
    assert kept[-1].pending[0].act == "destroy"
    machine.mark_busy(0, 0, busy=False)
    carry_out(SmiDriver(machine), kept[-1])
    assert tuple(machine.placed(0)) == new


def test_a_slice_that_nobody_planned_is_not_touched():
    machine = machine_with(1, [(A100.at("1g.10gb", 6),)])
    change, _ = plan_change(A100, [()], [(A100.at("3g.40gb", 4),)])
    with pytest.raises(ConflictError, match="in the way"):
        carry_out(SmiDriver(machine), change)


def test_the_price_counts_only_what_is_out_of_service():
    old = (A100.at("4g.40gb", 0), A100.at("2g.20gb", 4), A100.at("1g.10gb", 6))
    new = (A100.at("4g.40gb", 0), A100.at("3g.40gb", 4))
    change, (end,) = plan_change(A100, [old], [new], "bare")
    assert end == new
    assert [p.profile for p in change.kept[0]] == ["4g.40gb"]
    assert change.gpcs_idle == (3,)
    assert change.seconds == (6.0, 6.0)
    assert change.lost_gpc_seconds == 18.0
    assert [s.act for s in change.steps] == ["drain", "drain", "destroy", "destroy", "create", "serve"]
    with pytest.raises(InputError):
        plan_change(A100, [old], [new], "magic")
    with pytest.raises(InputError):
        plan_change(A100, [old], [new, new])
    with pytest.raises(InputError):
        change_from_json({"schema": "x"}, A100)


def test_without_a_driver_the_refusal_says_so():
    with pytest.raises(EngineError, match="not found"):
        SmiDriver(run_command, "no-such-nvidia-smi").instances()


def test_drift_and_hysteresis():
    planned = from_weights({1: 0.5, 8: 0.5})
    assert not detect(planned, 100, {1: 505, 8: 495}, 103).significant
    assert detect(planned, 100, {1: 900, 8: 100}, 100).significant
    assert detect(planned, 100, {1: 500, 8: 500}, 130).significant
    assert not detect(planned, 100, {1: 3, 8: 1}, 100).significant, "four queries say nothing"
    assert detect(planned, 100, {32: 100}, 100).batches == pytest.approx(1)
    assert worth_it(100, 150, 140, 500, 28).change
    assert not worth_it(100, 105, 140, 500, 28).change, "within the hysteresis"
    assert not worth_it(100, 150, 90, 500, 28).change, "the present layout serves the demand"
    assert not worth_it(100, 150, 140, 500, 28, seconds_since_last=60).change
    assert not worth_it(100, 150, 140, 500, 28, horizon_seconds=10).change


def test_the_same_change_through_nvml(nvml):
    driver = NvmlDriver(nvml)
    assert [p.name for p in driver.sku(0).base_profiles] == [p.name for p in A100.base_profiles]
    one = (A100.at("3g.40gb", 0), A100.at("1g.10gb", 4))
    change, _ = plan_change(A100, [()], [one])
    carry_out(driver, change)
    assert layouts_of(A100, driver.instances(), 1) == (one,)
    two = (A100.at("3g.40gb", 0), A100.at("3g.40gb", 4))
    change, _ = plan_change(A100, [one], [two])
    carry_out(driver, change)
    assert layouts_of(A100, driver.instances(), 1) == (two,)
    with pytest.raises(EngineError, match="Insufficient"):
        driver.create(0, "1g.10gb", 1)


def test_a_table_is_learned_from_nvml_at_run_time(nvml):
    done = CliRunner().invoke(verb, ["layouts", "mine", "--table", "nvml", "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    assert (document["sku"], document["maximal"], document["multisets"]) == ("mine", 19, 14)
    assert document["source"] == "learned from NVML"


def test_apply_on_the_command_line(tmp_path):
    plan, state, machine = tmp_path / "plan.json", tmp_path / "change.json", tmp_path / "machine.json"
    layout = [{"gpu": 0, "slices": [{"profile": "4g.40gb", "start": 0}, {"profile": "3g.40gb", "start": 4}]}]
    plan.write_text(json.dumps({"schema": "divvy.slices.plan/1", "sku": "A100-80GB", "layout": layout}))
    arguments = ["apply", str(plan), "--emulate", str(machine), "--state", str(state)]
    shown = CliRunner().invoke(verb, [*arguments, "--json"])
    assert shown.exit_code == 0, shown.output
    document = json.loads(shown.output)
    assert (document["applied"], document["emulator"]) == (False, True)
    assert not machine.exists()
    done = CliRunner().invoke(verb, [*arguments, "--yes"])
    assert done.exit_code == 0, done.output
    assert "EMULATOR" in done.output
    assert not state.exists()
    again = json.loads(CliRunner().invoke(verb, [*arguments, "--yes", "--json"]).output)
    assert again["steps"] == []
    assert len(json.loads(machine.read_text())["instances"]) == 2
