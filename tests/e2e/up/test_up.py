import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from divvy.adapters.store import archive
from divvy.adapters.store.database import open_database
from divvy.adapters.store.reader import Reader
from divvy.adapters.store.schema import prepare
from divvy.fleet.budget import parse_budget

pytestmark = pytest.mark.e2e


# -- one control plane for all of these ------------------------------------------------------------------


def test_a_job_runs_and_everything_is_told_of_it(plane):
    job = plane.submit("/bin/sh", "-c", "echo hello; exit 3")
    told = plane.until(lambda: plane.over(job))
    assert (told["state"], told["exit_code"]) == ("failed", 3)
    assert "Divvy is up: http://127.0.0.1:" in plane.output()
    assert "token=" not in plane.output()  # nobody sits in front of it
    lines = [json.loads(line) for line in (plane.home / "logs/loop.log").read_text().splitlines()]
    decision = next(line for line in lines if line["event"] == "start")
    assert (decision["job"], decision["account"], decision["level"]) == (job, "lab.vision", "info")
    assert decision["reason"] == "started_free"
    assert (plane.home / "divvy.db").stat().st_mode & 0o077 == 0
    assert plane.home.stat().st_mode & 0o777 == 0o711


def test_a_second_one_on_the_same_directory_is_refused_and_told_where_the_first_answers(plane, refused):
    second = refused(plane)
    assert second.code == 6
    assert "already-running" in second.err
    assert f"process {plane.process.pid}" in second.err
    assert "at http://127.0.0.1:" in second.err
    assert plane.answers()


def test_a_second_one_on_the_same_database_is_refused(plane, make_plane):
    other = make_plane("--database", f"sqlite:///{plane.home / 'divvy.db'}")
    command = subprocess.run(other.command(), capture_output=True, text=True, timeout=120, check=False)
    assert command.returncode == 6
    assert "a scheduler loop on this database runs here already" in command.stderr
    assert plane.answers()


@pytest.mark.parametrize("name", ["loop", "api"])
def test_a_child_that_dies_is_started_again_and_nobody_is_refused(plane, name):
    job = plane.submit("/bin/sleep", "60")
    plane.until(lambda: plane.job(job)["started_at"])
    old = plane.child(name)
    old.send_signal(signal.SIGKILL)
    after = plane.submit("/bin/true")  # waits in the socket or in the intake
    plane.until(lambda: plane.over(after))
    assert plane.child(name).pid != old.pid
    assert plane.job(job)["attempt"] == 1
    assert f"the {name} process ended (signal SIGKILL); starting it again" in plane.output()
    plane.client.delete("jobs", job)


# -- what is refused before anything is started -----------------------------------------------------------


def test_a_port_in_use_is_refused_with_what_to_do(make_plane, refused):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refused(make_plane(), "--port", str(port))
    assert told.code == 6
    assert "port-in-use" in told.err
    assert f"--port {port + 1}" in told.err


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--nodes", "4by4"], "node-shape"),
        (["--keep", "long"], "duration"),
        (["--database", "mysql://x/y"], "store-url"),
        (["--home", "/" + "long" * 40], "home-path-long"),
        (["--budget", "/nowhere.toml"], "budget-unreadable"),
    ],
)
def test_what_cannot_be_understood_is_refused(make_plane, refused, options, code):
    told = refused(make_plane(), *options)
    assert told.code == 2
    assert code in told.err


def test_an_unknown_policy_is_refused_with_the_known_ones(make_plane, refused):
    told = refused(make_plane(), "--policy", "budgt")
    assert told.code == 5
    assert "did you mean budget?" in told.err


def test_a_damaged_database_is_refused_and_left_alone(make_plane, refused):
    plane = make_plane()
    plane.home.mkdir()
    database = open_database(f"sqlite:///{plane.home / 'divvy.db'}")
    prepare(database)
    archive.found(database, parse_budget("[accounts.a]\nshare = 1\n"), 0, "test", "test")
    database.dispose()
    file = plane.home / "divvy.db"
    data = bytearray(file.read_bytes())
    data[4096:12288] = b"\xff" * 8192
    file.write_bytes(data)
    told = refused(plane)
    assert told.code == 3
    assert "store-damaged" in told.err
    assert "restore a copy" in told.err
    assert file.read_bytes() == data


def test_a_directory_that_cannot_be_written_is_refused(make_plane, refused, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("not a directory")
    told = refused(make_plane(), "--home", str(blocker / "home"))
    assert told.code == 3
    assert "home-unwritable" in told.err


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become somebody who may not write")
def test_a_directory_of_somebody_else_is_refused(make_plane):
    plane = make_plane()
    plane.home.mkdir(mode=0o755)
    plane.home.parent.chmod(0o755)
    body = "import os, sys; os.setgid(65534); os.setuid(65534); from divvy.service.home import make_home"
    body += "; from pathlib import Path; make_home(Path(sys.argv[1]))"
    command = [sys.executable, "-c", body, str(plane.home)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "No module named" in told.stderr:
        pytest.skip("the installation cannot be read by other users")
    assert "cannot write" in told.stderr


# -- stopping and starting --------------------------------------------------------------------------------


def test_what_runs_goes_on_over_a_stop_and_is_adopted(make_plane):
    plane = make_plane().start()
    version = plane.client.get("budget")["version"]
    change = {"share": 55, "reason": "test", "version": version}
    plane.client.patch("budget", "accounts", "lab.vision", body=change)
    long = plane.submit("/bin/sleep", "300")
    short = plane.submit("/bin/sh", "-c", "sleep 3; exit 7")
    plane.until(lambda: plane.started(short) and plane.started(long))
    # Until the start is known, a job shows when it was promised its devices.
    before = plane.until(lambda: (job := plane.job(long))["started_at"] == plane.began(long) and job)
    plane.stop()
    assert plane.process.returncode == 0
    assert "the next `divvy up` takes them over" in plane.output()
    assert plane.health().state == "stopped"
    time.sleep(3)  # the short one ends while nobody looks
    plane.start()
    told = plane.until(lambda: plane.over(short))
    assert (told["exit_code"], told["attempt"]) == (7, 1)
    after = plane.job(long)
    assert after["state"] == "protected"
    assert (after["attempt"], after["started_at"]) == (1, before["started_at"])
    database = open_database(f"sqlite:///{plane.home / 'divvy.db'}")
    (entry,) = Reader(database).ledger(job_id=short)
    database.dispose()
    record = json.loads((plane.home / "jobs" / short / "1" / "ended.json").read_text())
    assert entry.ended - entry.started == record["ended_steady_ms"] - record["started_steady_ms"]
    # the budget file of the command does not undo what was decided since
    assert "is not used: version 2 of the budget is in force here" in plane.output()
    shares = {account["path"]: account["share"] for account in plane.client.get("budget")["accounts"]}
    assert shares["lab.vision"] == 55
    plane.client.delete("jobs", long)
    assert plane.until(lambda: plane.over(long))["state"] == "cancelled"


def test_the_sample_organisation_is_alive_and_its_jobs_are_labelled(make_plane):
    plane = make_plane()
    plane.options = ["--sample"]
    plane.start()
    jobs = plane.until(
        lambda: len(plane.client.get("jobs")["jobs"]) >= 5 and plane.client.get("jobs")["jobs"]
    )
    assert all(job["name"].startswith("example: ") for job in jobs)
    plane.until(lambda: plane.client.get("status")["totals"]["running"] >= 2)
    assert {a["path"] for a in plane.client.get("budget")["accounts"]} >= {"research.vision", "product"}
    assert "#token=divvy_" in plane.output()


def test_it_runs_on_postgresql_and_survives_kill_there(make_plane, postgresql):
    plane = make_plane("--database", postgresql.new()).start()
    long = plane.submit("/bin/sleep", "300")
    plane.until(lambda: plane.started(long))
    old = plane.child("loop")
    old.kill()
    job = plane.submit("/bin/sh", "-c", "exit 4")
    assert plane.until(lambda: plane.over(job), 60)["exit_code"] == 4
    assert plane.job(long)["attempt"] == 1
    assert not (plane.home / "divvy.db").exists()
    plane.client.delete("jobs", long)
    plane.until(lambda: plane.over(long))
