"""What a machine lacks is said with what to do, and no machine is odd enough for a traceback."""

import json
import shutil
import sqlite3
import sys
from types import SimpleNamespace

import pytest

from divvy.adapters.machine import engines, store, system
from divvy.adapters.machine.check import Check, State, look_at
from divvy.cli import doctor, main
from divvy.service import schemas


@pytest.fixture
def run(monkeypatch, capsys):
    def divvy(*args):
        monkeypatch.setattr(sys, "argv", ["divvy", "doctor", *map(str, args)])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), capsys.readouterr()

    return divvy


def test_a_machine_that_will_do_is_ready_and_the_answer_has_its_shape(run, tmp_path):
    code, said = run("--home", tmp_path, "--json")
    document = json.loads(said.out)
    schemas.Doctor.model_validate(document)
    assert (code, document["ready"]) == (0, True)
    assert [check["name"] for check in document["checks"]] == [
        name for name, *_ in doctor.looks(tmp_path, 8470)
    ]
    assert all(check["fix"] for check in document["checks"] if check["state"] in ("fail", "missing"))
    code, said = run("--home", tmp_path)
    assert (code, "can run here" in said.out) == (0, True)


def test_what_is_needed_and_broken_is_a_failure_with_its_name(run, tmp_path):
    (tmp_path / "divvy.db").write_bytes(b"not a database" * 100)
    code, said = run("--home", tmp_path, "-q")
    assert code == 1
    assert "database" in said.out.split()
    (tmp_path / "file").write_text("")
    code, said = run("--home", tmp_path / "file", "--json")
    failed = {check["name"] for check in json.loads(said.out)["checks"] if check["state"] == "fail"}
    assert (code, "permissions" in failed) == (1, True)


@pytest.mark.parametrize(
    "error", [OSError("x"), ValueError(""), RuntimeError("y" * 999), KeyError("z"), MemoryError()]
)
def test_a_look_that_cannot_be_finished_is_unknown(error):
    def broken():
        raise error

    [found] = look_at([("odd", "nothing", broken)])
    assert (found.name, found.state, found.needed_for) == ("odd", State.UNKNOWN, "nothing")
    assert 0 < len(found.found) <= 300


def test_an_unknown_answer_about_what_is_needed_is_not_ready(run, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: 1 / 0)
    code, said = run("--home", tmp_path, "--json")
    assert (code, json.loads(said.out)["ready"]) == (1, False)


def test_a_machine_without_anything(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    monkeypatch.setattr(engines, "find_spec", lambda _name: None)
    for look in (engines.gpus, engines.slurm, engines.ray, engines.nixl, engines.browser):
        found = look()
        assert found.state is State.MISSING
        assert found.fix


def test_gpus_are_counted_with_those_that_are_cut(monkeypatch):
    class NVMLError(Exception):
        pass

    def mode(handle):
        if handle == 2:
            raise NVMLError
        return (handle, 0)

    fake = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMigMode=mode,
        nvmlDeviceGetName=lambda handle: "A100" if handle < 2 else "T4",
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(engines, "find_spec", lambda _name: object())
    assert engines.gpus() == Check(
        "nvml", State.OK, "3 GPUs (A100, T4), MIG enabled on 1", "GPUs as devices, their utilisation, MIG"
    )
    fake.nvmlDeviceGetCount = lambda: 0
    assert engines.gpus().state is State.MISSING


def test_a_full_disk_a_wrong_clock_and_a_long_path(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=1 << 20, total=1 << 40))
    assert system.disk(tmp_path / "not" / "yet").state is State.FAIL
    monkeypatch.setattr(system.time, "time", lambda: 86_400.0)
    assert (system.clock().state, "1970" in system.clock().found) == (State.FAIL, True)
    assert system.permissions(tmp_path / ("x" * 120)).state is State.FAIL


def test_a_port_that_is_taken_and_cgroups_of_every_kind(tmp_path):
    with system.socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert system.port(taken.getsockname()[1]).state is State.WARN
    assert system.cgroups(tmp_path).state is State.WARN
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "own").write_text("0::/\n")
    assert system.cgroups(tmp_path, tmp_path / "own").state is State.OK
    (tmp_path / "own").write_text("12:cpu:/x\n")
    assert system.cgroups(tmp_path, tmp_path / "own").state is State.OK


def test_a_sound_store_and_one_that_lies_elsewhere(tmp_path):
    sqlite3.connect(tmp_path / "divvy.db").close()
    assert store.database(tmp_path, "sqlite:///x").state is State.OK
    told = store.database(tmp_path, "postgresql+psycopg://u:secret@db/divvy")
    assert (told.state, "secret" in told.found) == (State.OK, False)
