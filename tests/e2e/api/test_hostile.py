"""What nobody sane sends. Nothing of it may give a 500, reach a file, or stop the server from answering."""

import json
import socket

import pytest

pytestmark = pytest.mark.e2e

GOOD = {"account": "lab.language", "gpus": 1, "argv": ["true"], "min_runtime": "1h"}


def refused(answer, status, *codes):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    found = [fault["code"] for fault in problem["faults"]]
    if codes:
        assert found == list(codes)
    assert problem["code"] == found[0]
    return problem


def post(api, content, **headers):
    return api.local.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"} | headers)


@pytest.fixture(autouse=True)
def still_answers(shared_api):
    yield
    assert shared_api.get("/v1/health")["status"] == "ok"


# -- bodies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe\x00",
        b'{"account": "lab.language", "gpus": 1, "argv": ["true"]} trailing',
        b"[" * 5_000 + b"]" * 5_000,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b'{"account": "lab.language", "gpus": ' + b"9" * 5_000 + b', "argv": ["true"]}',
    ],
    ids=[
        "empty",
        "cut",
        "null",
        "list",
        "text",
        "bytes",
        "trailing",
        "deep-list",
        "deep-object",
        "long-number",
    ],
)
def test_a_body_that_is_no_job_is_refused(shared_api, content):
    refused(post(shared_api, content), 422)


def test_a_declared_body_too_large_is_refused_before_it_is_read(shared_api):
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(10)
        raw.connect(str(shared_api.path))
        raw.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        head = b""
        while b"body-large" not in head and (piece := raw.recv(65_536)):
            head += piece
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"body-large" in head


def test_a_body_that_grows_too_large_is_refused_while_it_is_read(shared_api):
    def endless():
        yield b'{"account": "'
        for _ in range(40):
            yield b"a" * 65_536

    refused(shared_api.local.post("/v1/jobs", content=endless()), 413, "body-large")


def test_large_headers_are_refused(shared_api):
    refused(shared_api.local.get("/v1/status", headers={"X-Long": "a" * 40_000}), 431, "header-large")
    assert shared_api.local.get("/v1/status", headers={"X-Long": "a" * 500_000}).status_code in (400, 431)


@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        ({"gpus": "1"}, "request-int-type", "gpus"),
        ({"gpus": 1.5}, "request-int-type", "gpus"),
        ({"gpus": True}, "request-int-type", "gpus"),
        ({"gpus": 0}, "request-greater-than-equal", "gpus"),
        ({"gpus": 10**12}, "request-less-than-equal", "gpus"),
        ({"argv": "true"}, "request-list-type", "argv"),
        ({"argv": []}, "request-too-short", "argv"),
        ({"argv": ["a"] * 5_000}, "request-too-long", "argv"),
        ({"argv": [1]}, "request-string-type", "argv.0"),
        ({"argv": [""]}, "argv-empty", "argv"),
        ({"argv": ["a\0b"]}, "argv-nul", "argv"),
        ({"argv": ["x" * 200_000]}, "argv-size", "argv"),
        ({"env": {"A=B": "1"}}, "env-name", "env.A=B"),
        ({"env": {"": "1"}}, "env-name", "env."),
        ({"env": {"A": "\0"}}, "env-name", "env.A"),
        ({"env": {"A": "x" * 300_000}}, "env-size", "env"),
        ({"env": {f"V{i}": "1" for i in range(2_000)}}, "request-too-long", "env"),
        ({"cwd": "relative"}, "cwd-relative", "cwd"),
        ({"cwd": "/a\0b"}, "cwd-relative", "cwd"),
        ({"account": "lab.nothing"}, "account-unknown", "account"),
        ({"account": "../../etc"}, "account-unknown", "account"),
        ({"account": "lab'; DROP TABLE job; --"}, "account-unknown", "account"),
        ({"account": "l" * 300}, "request-string-too-long", "account"),
        ({"name": "a\nb"}, "text-control", "name"),
        ({"name": "\u202etxt"}, "text-control", "name"),
        ({"id": "../../../etc/passwd"}, "request-string-pattern-mismatch", "id"),
        ({"id": "a b"}, "request-string-pattern-mismatch", "id"),
        ({"id": "a\n"}, "request-string-pattern-mismatch", "id"),
        ({"id": ".."}, "request-string-pattern-mismatch", "id"),
        ({"id": "é"}, "request-string-pattern-mismatch", "id"),
        ({"id": ""}, "request-string-pattern-mismatch", "id"),
        ({"min_runtime": "1 fortnight"}, "duration", "min_runtime"),
        ({"min_runtime": "-1h"}, "duration", "min_runtime"),
        ({"min_runtime": "9h"}, "min-runtime-cap", "min_runtime"),
        ({"time_limit": "99999999999999w"}, "duration-long", "time_limit"),
        ({"time_limit": "1" * 190 + "w"}, "duration-long", "time_limit"),
        ({"warn_signal": "SIGNOPE"}, "warn-signal", "warn_signal"),
        ({"warn_signal": "USR1; rm -rf /"}, "request-string-pattern-mismatch", "warn_signal"),
        ({"memory_bytes": 1 << 70}, "request-less-than-equal", "memory_bytes"),
        ({"priority": 10**9}, "request-less-than-equal", "priority"),
        ({"kind": "daemon"}, "request-literal-error", "kind"),
        ({"model": "H100'"}, "model-unknown", "model"),
        ({"uid": 0}, "request-unknown", "uid"),
        ({"author": "root"}, "request-unknown", "author"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else None,
)
def test_a_field_out_of_bounds_is_named(shared_api, change, code, path):
    problem = refused(shared_api.local.post("/v1/jobs", json=GOOD | change), 422, code)
    assert problem["faults"][0]["path"] == path


def test_lone_surrogates_are_refused(shared_api):
    refused(post(shared_api, json.dumps(GOOD | {"argv": ["\ud800"]}).encode()), 422)


def test_all_faults_of_a_submission_come_at_once(shared_api):
    bad = GOOD | {
        "account": "lab",
        "min_runtime": "99h",
        "time_limit": "soon",
        "cwd": "here",
        "env": {"A=": "1"},
        "gpus": 99,
        "name": "\t",
    }
    refused(
        shared_api.local.post("/v1/jobs", json=bad),
        422,
        "duration",
        "text-control",
        "account-not-leaf",
        "min-runtime-cap",
        "gpus-fleet",
        "cwd-relative",
        "env-name",
    )


def test_what_looks_odd_but_is_sound_is_taken_as_it_is(shared_api):
    odd = GOOD | {
        "argv": ["sh", "-c", 'echo "$HOME"; `id`', "--", "; rm -rf /", "größe 😀", ""],
        "env": {"PS1": "\\u@\\h $(id)", "EMPTY": ""},
        "name": "größe 😀 <script>alert(1)</script>",
    }
    made = shared_api.submit(**odd)
    assert (made["argv"], made["env"], made["name"]) == (odd["argv"], odd["env"], odd["name"])
    shared_api.local.delete(f"/v1/jobs/{made['id']}")


# -- paths and queries ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "j1%00",
        "%ff",
        "a" * 300,
        "j1%0a",
        "none",
        "-",
        "j1;id",
        "%F0%9F%98%80",
    ],
)
@pytest.mark.parametrize("rest", ["", "/explain", "/logs"])
def test_a_job_id_that_is_none_is_not_found(shared_api, name, rest):
    answer = shared_api.local.get(f"/v1/jobs/{name}{rest}")
    assert answer.status_code == 404, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/jobs?limit=0", "request-greater-than-equal"),
        ("/v1/jobs?limit=1001", "request-less-than-equal"),
        ("/v1/jobs?limit=x", "request-int-parsing"),
        ("/v1/jobs?before=-1", "page-before"),
        ("/v1/jobs?before=9999999999999999999", "page-before"),
        ("/v1/jobs?before=%D9%A3", "page-before"),
        ("/v1/jobs?state=zombie", "state-unknown"),
        ("/v1/queue?account=" + "a" * 600, "request-string-too-long"),
        ("/v1/statement?from=inf", "request-less-than-equal"),
        ("/v1/statement?from=nan", "request-less-than-equal"),
        ("/v1/statement?from=1e300", "request-less-than-equal"),
        ("/v1/statement?from=9&to=8", "period-empty"),
        ("/v1/statement?from=0", "period-long"),
        ("/v1/decisions?before=99999999999999999999", "request-less-than-equal"),
        ("/v1/decisions/-1", "request-greater-than-equal"),
        ("/v1/decisions/x", "request-int-parsing"),
    ],
)
def test_a_query_out_of_bounds_is_refused(shared_api, path, code):
    refused(shared_api.local.get(path), 422, code)


@pytest.mark.parametrize(
    "path", ["/v1/", "/v2/jobs", "/v1/jobs/x/y/z", "/web/../../../etc/passwd", "/web/%2e%2e/x.py"]
)
def test_what_is_not_there_is_not_found(shared_api, path):
    assert shared_api.local.get(path).status_code == 404


def test_a_wrong_method_is_a_problem_too(shared_api):
    refused(shared_api.local.delete("/v1/status"), 405, "method-unknown")


@pytest.mark.parametrize(
    "path", ["/v1/queue?account=%27%3B--", "/v1/jobs?author=%25&account=%25", "/v1/jobs?account=_"]
)
def test_wildcards_and_quotes_mean_themselves(shared_api, path):
    assert shared_api.local.get(path).json()["jobs"] == []


# -- credentials ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Basic cm9vdDpyb290",
        "Bearer root",
        "Bearer divvy_000000000000_",
        "Bearer divvy_000000000000_" + "A" * 10_000,
        "Bearer divvy_00000000000g_" + "A" * 43,
        "Bearer divvy_000000000000_" + "A" * 43 + " extra",
    ],
)
def test_a_header_that_is_no_token_opens_nothing(shared_api, header):
    for client in (shared_api.local, shared_api.remote()):  # not even for root over the socket
        refused(client.get("/v1/status", headers={"Authorization": header}), 401)


@pytest.mark.parametrize("name", ["X-Forwarded-User", "X-Remote-User", "Forwarded", "X-Divvy-Peer", "Cookie"])
def test_no_header_makes_a_stranger_known(shared_api, name):
    answer = shared_api.remote().get("/v1/status", headers={name: "root"})
    assert answer.headers["www-authenticate"] == "Bearer"
    refused(answer, 401, "token-missing")


def test_every_answer_carries_its_security_headers(shared_api):
    for path in ("/v1/status", "/v1/jobs/none", "/v2", "/openapi.json"):
        headers = shared_api.local.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers
