"""Every verb against an API that answers by the models of `divvy.service.schemas`."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import resource
import signal
import struct
import subprocess
import sys
import termios
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fake_fleet import FakeFleet
from fake_server import Server

pytestmark = pytest.mark.e2e

LONG = "lab.language.pretraining"
SCHEMAS = Path(__file__).parents[3] / "docs" / "reference" / "schemas"
ASKING = {
    "status": ["status"],
    "status of a job": ["status", "j00001"],
    "queue": ["queue"],
    "running": ["queue", "--state", "running"],
    "explain": ["explain", "j00013"],
    "budget": ["budget", "show"],
    "history": ["budget", "history"],
    "statement": ["statement"],
    "hours": ["statement", "--hourly", "--from", "3h"],
    "tokens": ["token", "list"],
    "decisions": ["decisions", "--limit", "5"],
}


def check_schema(document: dict[str, Any]) -> None:
    """Hold a document to the published schema that it names."""
    name, _, version = document["schema"].removeprefix("divvy.").partition("/")
    jsonschema.validate(document, json.loads((SCHEMAS / f"{name}.{version}.json").read_text()))


def on_terminal(*args: str, columns: int, colour: bool = False, **env: str) -> tuple[int, str]:
    """Run the command line on a terminal of a width; return its exit code and what it showed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    full = os.environ | {"TERM": "xterm-256color", "NO_COLOR": "" if colour else "1"} | env
    full.pop("COLUMNS", None)
    command = [sys.executable, "-m", "divvy", *args]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=full) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # the last writer has gone
                break
            if not piece:
                break
            shown += piece
    os.close(ours)
    return process.returncode, shown.decode().replace("\r\n", "\n")


# -- asking -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", ASKING.values(), ids=ASKING.keys())
def test_json_is_the_document_of_the_api(divvy, home, args):
    ran = divvy(*args, "--json")
    assert ran.code == 0
    assert ran.err == ""
    check_schema(json.loads(ran.out))
    assert ran.out.count("\n") == 1, "one line in a pipe"


@pytest.mark.parametrize("args", ASKING.values(), ids=ASKING.keys())
def test_a_pipe_never_cuts_and_never_colours(divvy, home, fleet, args):
    fleet.create_token({"user": "bo", "role": "viewer", "accounts": ["lab"], "label": "page"})
    ran = divvy(*args)
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "…" not in ran.out
    assert "too narrow" not in ran.out


def test_what_acts_answers_by_the_schemas_too(divvy, home):
    (home / "up.json").write_text('{"url": "http://127.0.0.1:8470"}')
    for args in (
        ["submit", "-A", LONG, "--json", "--", "true"],
        ["cancel", "j00013", "--json"],
        ["drain", "gpu-001", "--reason", "fan", "--json"],
        ["drain", "gpu-001", "--undo", "--json"],
        ["budget", "set", "lab.vision", "40", "--reason", "less", "--json"],
        ["token", "create", "bo", "--json"],
        ["token", "revoke", "t001", "--json"],
        ["page", "--json"],
    ):
        check_schema(json.loads(divvy(*args).out))
    for line in divvy("logs", "j00014", "--json").out.splitlines():
        check_schema(json.loads(line))
    problem = json.loads(divvy("explain", "nope", "--json").err)
    jsonschema.validate(problem, json.loads((SCHEMAS / "problem.json").read_text()))


def test_quiet_prints_ids_only(divvy, home, fleet):
    assert divvy("queue", "-q").out.split() == [job["id"] for job in fleet.queue()["jobs"]]
    assert divvy("status", "-q").out.split() == [node["name"] for node in fleet.nodes]
    assert divvy("budget", "show", "-q").out.split() == list(fleet.shares)
    assert divvy("budget", "history", "-q").out.split() == ["3", "2", "1"]
    assert divvy("explain", "j00013", "-q").out.split() == fleet.explain("j00013")["ahead"]


def test_answers_say_how_old_they_are(divvy, home, fleet):
    for args in (["status"], ["queue"], ["explain", "j00013"], ["budget", "show"], ["statement"]):
        assert "old" in divvy(*args).out.splitlines()[-1]
    fleet.age = 95.0
    assert "1m 35s old: the scheduler is silent" in divvy("status").out


def test_an_unknown_utilisation_is_not_a_zero(divvy, home):
    line = next(line for line in divvy("status").out.splitlines() if line.startswith("gpu-006"))
    assert "n/a" in line
    assert "0%" not in line


def test_status_of_a_large_fleet_fits_on_one_screen(divvy, home, fleet):
    fleet.nodes = FakeFleet(nodes=1_250, waiting=0).nodes
    lines = divvy("status").out.splitlines()
    assert len(lines) < 40
    assert any("1250 nodes in groups" in line for line in lines)
    assert len(divvy("status", "--nodes").out.splitlines()) > 1_250


def test_filters_reach_the_server(divvy, home):
    rows = json.loads(divvy("queue", "-A", "lab.vision", "--limit", "3", "--json").out)["jobs"]
    assert [row["account"].startswith("lab.vision.") for row in rows] == [True] * 3
    ended = json.loads(divvy("queue", "--state", "ended", "--json").out)["jobs"]
    assert ended == []


def test_empty_lists_say_what_to_do_next(divvy, home, fleet):
    fleet.jobs.clear()
    assert "divvy queue --state running" in divvy("queue").out
    assert "divvy submit" in divvy("queue", "--state", "all").out
    assert "divvy token create" in divvy("token", "list").out


# -- acting -----------------------------------------------------------------------------------------------


def test_submit_keeps_directory_and_environment(divvy, home, fleet, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIVVY_TOKEN", "secret")
    monkeypatch.setenv("LR", "0.1")
    ran = divvy(
        "submit",
        "-A",
        LONG,
        "-g",
        "2",
        "--min-runtime",
        "2h",
        "--env",
        "A=b=c",
        "-q",
        "--",
        "run",
        "--lr",
        "$LR",
    )
    job = fleet.jobs[ran.out.strip()]
    assert job["argv"] == ["run", "--lr", "$LR"]
    assert job["cwd"] == str(tmp_path)
    assert job["env"]["LR"] == "0.1"
    assert job["env"]["A"] == "b=c"
    assert "DIVVY_TOKEN" not in job["env"]


def test_submit_without_the_environment(divvy, home, fleet):
    ran = divvy("submit", "-A", LONG, "--no-env", "--env", "X=1", "-q", "--", "true")
    assert fleet.jobs[ran.out.strip()]["env"] == {"X": "1"}


def test_options_after_the_command_belong_to_it(divvy, home, fleet):
    ran = divvy("submit", "-A", LONG, "-q", "python", "x.py", "--gpus", "7", "-q")
    job = fleet.jobs[ran.out.strip()]
    assert job["argv"] == ["python", "x.py", "--gpus", "7", "-q"]
    assert job["gpus"] == 1


def test_submit_waits_and_exits_as_the_job_did(divvy, home, fleet):
    def answer(job_id):
        view = {"schema": "divvy.job/1", **fleet.jobs[job_id], "as_of": 0.0, "age_seconds": 0.0}
        return view | {"state": "failed", "exit_code": 7, "running_seconds": 3.0, "cause": "failed"}

    fleet.job = answer
    ran = divvy("submit", "-A", LONG, "--wait", "--", "false")
    assert ran.code == 7
    assert "failed (after 3.0s, exit code 7)" in ran.out


def test_cancel_tries_every_job_and_exits_with_the_first_refusal(divvy, home, fleet):
    ran = divvy("cancel", "j00013", "j99999", "j00014")
    assert ran.code == 5
    assert fleet.jobs["j00013"]["state"] == fleet.jobs["j00014"]["state"] == "cancelled"
    assert "j99999" in ran.err
    assert divvy("cancel", "j00013").code == 6


def test_budget_set_sends_version_and_reason(divvy, home, fleet):
    ran = divvy("budget", "set", "lab.vision", "40", "--reason", "grant ended")
    assert ran.code == 0
    assert "lab.vision: 45.0% -> 40.0%" in ran.out
    assert fleet.versions[0]["reason"] == "grant ended"
    assert divvy("budget", "set", "lab.vision", "41", "--reason", "late", "--version", "3").code == 6


@pytest.mark.parametrize("share", ["-5", "-0.5%", "101", "5x", "nan"])
def test_a_share_that_is_none_is_refused_as_one(divvy, home, fleet, share):
    ran = divvy("budget", "set", "lab.vision", share, "--reason", "typing too fast")
    assert (ran.code, fleet.requests) == (2, [])
    assert "0 to 100" in ran.err
    assert "No such option: --shares" in divvy("budget", "set", "lab.vision", "--shares", "5", "-r", "x").err


def test_waiting_jobs_add_up_to_those_in_the_columns_and_the_rest_is_named(divvy, home, fleet):
    status = fleet.status()
    status["totals"]["queued"] += 2
    fleet.status = lambda: status
    assert "(2 of them unallocated: in no account's column)" in divvy("status").out


def test_budget_apply_reports_all_faults_before_it_asks(divvy, home, fleet, tmp_path):
    file = tmp_path / "budget.toml"
    file.write_text("[accounts.vision]\nshare = 120\n[accounts.audio]\nshare = -1\ncolour = 3\n")
    ran = divvy("budget", "apply", str(file), "--reason", "new")
    assert ran.code == 2
    assert "budget.toml.vision.share: 120 > 100" in ran.err
    assert "budget.toml.audio.colour" in ran.err
    assert fleet.requests == []
    file.write_text("[accounts.vision]\nshare = 33.3\n")
    assert divvy("budget", "apply", str(file), "--reason", "new", "-q").out == "4\n"
    assert fleet.requests[-1][2]["document"]["accounts"] == {"vision": {"share": 33.3}}


def test_drain_needs_a_reason_and_can_be_undone(divvy, home, fleet):
    assert divvy("drain", "gpu-001").code == 2
    assert "draining: fan" in divvy("drain", "gpu-001", "--reason", "fan").out
    assert fleet.nodes[0]["state"] == "draining"
    assert divvy("drain", "gpu-001", "--undo").code == 0
    assert fleet.nodes[0]["state"] == "up"


def test_tokens_are_made_listed_and_revoked(divvy, home):
    assert (
        divvy("token", "create", "bo", "--role", "submitter", "-A", "lab", "-q").out
        == "dvy_secret-shown-once\n"
    )
    assert "bo" in divvy("token", "list").out
    assert divvy("token", "revoke", "t001").code == 0
    assert divvy("token", "revoke", "t001").code == 5


def test_the_page_is_found_and_signed_in(divvy, home, fleet):
    assert divvy("page").code == 5
    (home / "up.json").write_text('{"url": "http://127.0.0.1:8470"}')
    assert divvy("page", "-q").out == "http://127.0.0.1:8470/#token=dvy_secret-shown-once\n"
    made = json.loads(divvy("page", "--json").out)
    assert made["token_id"] in fleet.tokens
    assert "divvy token revoke t003" in divvy("page").out


def test_logs_go_where_the_job_wrote_them(divvy, home):
    ran = divvy("logs", "j00013")
    assert ran.out == "step 0: loss 2.500 é€\nstep 1: loss 1.250 é€\nstep 2: loss 0.833 é€\n"
    assert ran.err == "warning: no GPU found, using 2 CPU slots\n"
    followed = divvy("logs", "j00013", "-f")
    assert followed.out == ran.out
    assert sorted(followed.err.splitlines()) == [
        "j00013 waits (queued); divvy explain j00013 says why",
        *ran.err.splitlines(),
    ]
    pieces = [
        json.loads(line)
        for line in divvy("logs", "j00013", "-f", "--stream", "stdout", "--json").out.splitlines()
    ]
    assert "".join(piece["text"] for piece in pieces) == ran.out
    assert pieces[-1]["next_offset"] == len(ran.out.encode())
    assert divvy("logs", "nope").code == 5


# -- refusals ---------------------------------------------------------------------------------------------


def test_an_unknown_name_lists_the_valid_ones_and_the_nearest(divvy, home):
    ran = divvy("submit", "-A", "lab.vison.maping", "--", "true")
    assert ran.code == 2
    assert "[account-unknown]" in ran.err
    assert "did you mean lab.vision.mapping?" in ran.err
    assert "lab.robotics" in ran.err
    ran = divvy("statsu")
    assert ran.code == 2
    assert "did you mean status or statement?" in ran.err


def test_a_refusal_is_problem_json_where_json_was_asked_for(divvy, home):
    ran = divvy("submit", "-A", LONG, "-g", "4000", "--json", "--", "true")
    assert ran.code == 2
    assert ran.out == ""
    problem = json.loads(ran.err)
    assert problem["code"] == "gpus-too-many"
    assert problem["faults"][0]["allowed"] == "1 to 48"
    assert divvy("submit", "-A", LONG, "-g", "4000", "--", "run", "--json").err.startswith("error: ")


def test_no_server_says_how_to_get_one(divvy, tmp_path, monkeypatch):
    monkeypatch.setenv("DIVVY_HOME", str(tmp_path))
    ran = divvy("status")
    assert ran.code == 3
    assert "divvy up" in ran.err
    ran = divvy("status", "--server", "ftp://somewhere")
    assert ran.code == 2
    assert "https://HOST:PORT" in ran.err


def test_the_network_needs_a_token(divvy, fleet, monkeypatch, tmp_path):
    monkeypatch.setenv("DIVVY_HOME", str(tmp_path))
    with Server(fleet, token="right") as server:  # noqa: S106 - of the fake
        assert divvy("status", "--server", server.url).code == 4
        monkeypatch.setenv("DIVVY_TOKEN", "right")
        assert divvy("status", "--server", server.url).code == 0


# -- terminals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize(
    "args", [["status"], ["queue"], ["queue", "--state", "all"], ["budget", "show"], ["statement"]]
)
def test_tables_fit_a_terminal_and_keep_ids_whole(home, fleet, args, columns):
    for job in fleet.jobs.values():
        job["name"] = "a-very-long-name-of-a-job-that-somebody-typed"
    code, shown = on_terminal(*args, columns=columns)
    assert code == 0
    rows = [line for line in shown.splitlines() if "lab." in line]
    assert len(rows) >= 7
    assert max(map(len, rows)) <= columns
    assert any(LONG in row for row in rows)
    assert "…" not in "".join(row.split("lab.")[1].split()[0] for row in rows)


def test_no_truncate_shows_everything_on_any_terminal(home):
    _, shown = on_terminal("queue", "--no-truncate", columns=60)
    assert "other jobs of the same account go first" in shown
    assert "too narrow" not in shown
    assert "train-vit-l" in shown


def test_colours_can_be_switched_off(home):
    assert "\x1b[" in on_terminal("status", columns=120, colour=True)[1]
    assert "\x1b[" not in on_terminal("status", columns=120)[1]
    assert "\x1b[" not in on_terminal("status", columns=120, colour=True, TERM="dumb")[1]


def test_a_job_name_cannot_drive_the_terminal(home, fleet):
    fleet.jobs["j00013"]["name"] = "\x1b]0;owned\x07\u202eevil"
    _, shown = on_terminal("queue", columns=250, colour=True)
    assert "\x1b]" not in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown
    assert "evil" in shown


def test_a_spinner_is_for_terminals_only(home, fleet, divvy):
    original, asked = fleet.job, Counter()

    def answer(job_id):
        asked[job_id] += 1  # the first time is the answer to the submission itself
        done = {"state": "finished", "exit_code": 0, "running_seconds": 1.0} if asked[job_id] > 2 else {}
        return original(job_id) | done

    fleet.job = answer
    code, shown = on_terminal("submit", "-A", LONG, "--wait", "--", "true", columns=100, colour=True)
    assert code == 0
    assert "queued, waiting for" in shown
    ran = divvy("submit", "-A", LONG, "--wait", "--", "true")
    assert ran.code == 0
    assert "waiting for" not in ran.out + ran.err


def test_an_interrupted_wait_exits_with_130_and_without_a_traceback(home):
    command = [sys.executable, "-m", "divvy", "submit", "-A", LONG, "--wait", "--", "true"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "submitted" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err


# -- completion and start -------------------------------------------------------------------------------


def complete(words: str) -> list[str]:
    """Return what bash would offer after these words."""
    env = os.environ | {
        "_DIVVY_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    code = "import sys; sys.argv[0] = 'divvy'; from divvy.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    return done.stdout.split()


def test_completion_offers_verbs_accounts_and_jobs(home, fleet):
    assert complete("divvy sta") == ["status", "statement"]
    assert complete("divvy submit --account lab.v") == ["lab.vision.perception", "lab.vision.mapping"]
    assert complete("divvy explain j0001") == sorted(
        (j for j in fleet.jobs if j.startswith("j0001")), reverse=True
    )
    assert complete("divvy drain gpu-00")[0] == "gpu-001"
    assert "set" in complete("divvy budget ")


def test_completion_is_silent_without_a_server(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVVY_HOME", str(tmp_path))
    assert complete("divvy explain j") == []


def test_client_verbs_import_nothing_heavy(home):
    code = (
        "import sys; sys.argv = ['divvy', 'status']\n"
        "from divvy.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'sqlalchemy', 'fastapi', 'pydantic', 'httpx', 'rich'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_help_and_status_start_quickly(home):
    """CPU time, so that the neighbours on a busy machine do not count; docs/adr/0041 has the wall clock."""

    def best(*args: str) -> float:
        times = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-m", "divvy", *args], capture_output=True, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(times)

    assert best("--help") < 0.25
    assert best("status") < 0.25
