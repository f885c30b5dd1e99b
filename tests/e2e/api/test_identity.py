"""The kernel says who is at the other end: tried with real processes of other users."""

import json
import os
import pwd
import subprocess
import sys

import pytest

from divvy.errors import DeniedError
from divvy.service.context import local_identity
from divvy.service.identity import Role
from divvy.service.peer import Peer, user_name
from divvy.service.submission import run_as

pytestmark = pytest.mark.e2e

ASK = """
import http.client, json, os, socket, sys
path, uid, gid, method, target, body = sys.argv[1:]
if int(uid) >= 0:
    os.setgroups([])
    os.setresgid(int(gid), int(gid), int(gid))
    os.setresuid(int(uid), int(uid), int(uid))
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(path)
connection.request(method, target, body or None, {"Content-Type": "application/json"})
answer = connection.getresponse()
print(json.dumps([answer.status, json.loads(answer.read() or b"null")]))
"""
NOBODY = pwd.getpwnam("nobody")
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")


def ask(api, target, method="GET", body="", uid=-1, gid=-1):
    api.path.parent.chmod(0o711)
    for parent in api.path.parents[1:4]:
        if parent != parent.parent:
            parent.chmod(parent.stat().st_mode | 0o011)
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(api.path), str(uid), str(gid), method, target, body],
        capture_output=True,
        check=True,
        cwd="/",
    )
    return json.loads(done.stdout)


JOB = json.dumps({"account": "lab.language", "gpus": 1, "argv": ["id"], "min_runtime": "1h", "name": "mine"})


def test_whoever_runs_the_control_plane_is_an_administrator(api):
    assert ask(api, "/v1/tokens")[0] == 200


@root
def test_somebody_else_is_known_by_name_and_no_more_than_that(api):
    status, _ = ask(api, "/v1/tokens", uid=NOBODY.pw_uid, gid=NOBODY.pw_gid)
    assert status == 403
    status, job = ask(api, "/v1/jobs", "POST", JOB, uid=NOBODY.pw_uid, gid=NOBODY.pw_gid)
    assert (status, job["author"]) == (201, "nobody")
    status, seen = ask(api, f"/v1/jobs/{job['id']}", uid=1, gid=1)
    assert (status, seen["argv"], seen["name"]) == (200, None, "")
    assert ask(api, f"/v1/jobs/{job['id']}", "DELETE", uid=1, gid=1)[0] == 403
    assert ask(api, f"/v1/jobs/{job['id']}/logs", uid=1, gid=1)[0] == 403
    assert ask(api, f"/v1/jobs/{job['id']}", uid=NOBODY.pw_uid, gid=NOBODY.pw_gid)[1]["argv"] == ["id"]
    assert ask(api, f"/v1/jobs/{job['id']}", "DELETE", uid=NOBODY.pw_uid, gid=NOBODY.pw_gid)[0] == 202


@root
def test_a_job_runs_as_its_submitter_where_the_daemon_is_root(api):
    object.__setattr__(api.backend, "daemon_uid", 0)
    _, job = ask(api, "/v1/jobs", "POST", JOB, uid=NOBODY.pw_uid, gid=NOBODY.pw_gid)
    launch = api.world.reader.launch(job["id"])
    assert (launch["user"], launch["uid"], launch["gid"]) == ("nobody", NOBODY.pw_uid, NOBODY.pw_gid)
    _, mine = ask(api, "/v1/jobs", "POST", JOB)
    assert api.world.reader.launch(mine["id"])["uid"] == 0
    ghost = api.remote(api.world.token("nobody-of-this-machine", "submitter", ["lab"]))
    refused = ghost.post("/v1/jobs", content=JOB, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["code"]) == (403, "user-unknown")


@root
def test_a_user_id_without_a_name_is_still_somebody(api):
    assert user_name(4_000_000) == "uid-4000000"
    status, job = ask(api, "/v1/jobs", "POST", JOB, uid=4_000_000, gid=4_000_000)
    assert (status, job["author"]) == (201, "uid-4000000")


def test_roles_of_the_socket():
    assert local_identity(Peer(1, 0, 0), 1000).role is Role.ADMIN
    assert local_identity(Peer(1, 1000, 1000), 1000).role is Role.ADMIN
    other = local_identity(Peer(1, 1001, 1001), 1000)
    assert (other.role, other.accounts, other.uid) == (Role.OWNER, None, 1001)


def test_where_the_daemon_is_not_root_jobs_run_as_the_daemon():
    who = run_as(local_identity(Peer(1, 0, 0), 4_000_000), 4_000_000)
    assert (who.user, who.uid, who.home) == ("root", 4_000_000, "/")
    with pytest.raises(DeniedError):
        local_identity(Peer(1, 1001, 1001), 1000).require(Role.ADMIN, "do this")


# -- tokens -----------------------------------------------------------------------------------------------


def test_a_token_is_shown_once_kept_as_a_hash_and_ends_when_revoked(api):
    made = api.local.post(
        "/v1/tokens",
        json={
            "user": "eve",
            "role": "submitter",
            "accounts": ["lab.vision"],
            "label": "laptop",
            "expires_in": "1h",
        },
    ).json()
    assert made["expires_at"] - made["created_at"] == pytest.approx(3600)
    stored = (
        api.world.database.file.read_bytes() + api.world.database.file.with_suffix(".db-wal").read_bytes()
    )
    assert made["token"].encode() not in stored
    assert made["token"].rsplit("_", 1)[1].encode() not in stored
    eve = api.remote(made["token"])
    assert eve.get("/v1/status").status_code == 200
    listed = {token["id"]: token for token in api.get("/v1/tokens")["tokens"]}
    assert "token" not in listed[made["id"]]
    assert listed[made["id"]]["last_used_at"] >= made["created_at"]
    assert api.local.delete(f"/v1/tokens/{made['id']}").json()["id"] == made["id"]
    assert eve.get("/v1/status").status_code == 401
    assert api.local.delete(f"/v1/tokens/{made['id']}").status_code == 404


def test_a_token_ends_at_its_time(api):
    token = api.world.token("eve", "viewer", expires=api.backend.now() + 300)
    eve = api.remote(token)
    assert eve.get("/v1/status").status_code == 200
    ended = api.wait(lambda: (a := eve.get("/v1/status")).status_code == 401 and a)
    assert ended.json()["code"] == "token-expired"


def test_the_last_use_is_written_down(api):
    token = api.world.token("eve", "viewer")
    api.remote(token).get("/v1/status")
    api.app.state.service.tokens.write_used()
    kept = next(row for row in api.world.tokens.all() if row.user == "eve")
    assert kept.last_used == pytest.approx(api.backend.now(), abs=10_000)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"role": "god"}, "request-literal-error"),
        ({"accounts": ["lab.nothing"]}, "account-unknown"),
        ({"user": ""}, "text-control"),
        ({"user": "a\nb"}, "text-control"),
        ({"expires_in": "soon"}, "duration"),
        ({"expires_in": "0"}, "duration-long"),
        ({"expires_in": "9999w"}, "duration-long"),
    ],
)
def test_a_token_that_makes_no_sense_is_not_made(shared_api, change, code):
    answer = shared_api.local.post("/v1/tokens", json={"user": "eve", "role": "viewer"} | change)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
