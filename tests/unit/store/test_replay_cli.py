import json
import sys
from pathlib import Path

import jsonschema
import pytest

from divvy.cli import main
from divvy.planners.jobs.fifo import FifoPlanner


@pytest.fixture
def divvy(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["divvy", "replay", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def home(make_world, tmp_path):
    """A state directory in which four jobs were decided about by `fifo`."""
    world = make_world(f"sqlite:///{tmp_path / 'divvy.db'}", planner=FifoPlanner)
    for gpus in (2, 4, 1, 4):
        world.submit(gpus=gpus)
        world.step(2)
    world.engine.end("j0000001", 1)
    world.step(2)
    return tmp_path


def test_the_last_passes_come_out_as_they_were_decided(divvy, home):
    code, out, _ = divvy("--last", 3, "--home", home, "--json")
    told = json.loads(out)
    assert (code, told["schema"], told["same"], len(told["passes"])) == (0, "divvy.replay/1", True, 3)
    schema = Path(__file__).parents[3] / "docs/reference/schemas/replay.1.json"
    jsonschema.validate(told, json.loads(schema.read_text()))
    assert {entry["planner"] for entry in told["passes"]} == {"fifo"}
    code, out, _ = divvy("1", "--home", home)
    assert code == 0
    assert "same" in out


def test_a_case_file_goes_anywhere_and_shows_a_change(divvy, home, tmp_path):
    case = tmp_path / "case.json"
    code, out, _ = divvy("3", "--home", home, "--export", case)
    assert code == 0
    assert str(case) in out
    assert divvy(case)[0] == 0
    document = json.loads(case.read_text())
    expected = document["plan"]["decisions"][0]["job"]
    document["plan"]["decisions"][0]["job"] = "another"
    case.write_text(json.dumps(document))
    code, out, _ = divvy(case)
    assert code == 6
    assert f"decisions[0].job: 'another' was recorded, '{expected}' came out" in out
    code, out, _ = divvy(case, "-q")
    assert (code, out.split()) == (6, ["3"])
    assert divvy(case, "--accept")[0] == 0
    assert json.loads(case.read_text())["plan"]["decisions"][0]["job"] == expected


def test_what_cannot_be_re_run_is_refused_with_what_can(divvy, home, tmp_path):
    code, _, err = divvy("999", "--home", home)
    assert code == 5
    assert "entry-unknown" in err
    assert "1 to " in err
    code, _, err = divvy("--home", tmp_path / "empty")
    assert code == 5
    assert "journal-missing" in err
    (tmp_path / "odd.json").write_text('{"schema": "other"}')
    code, _, err = divvy(tmp_path / "odd.json")
    assert code == 2
    assert "case-schema" in err
