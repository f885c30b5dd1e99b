"""Every route and every kind of caller: one table, and a check that no route is missing from it."""

import pytest

pytestmark = pytest.mark.e2e

CALLERS = (
    "nobody",
    "viewer",
    "submitter",
    "author",
    "owner",
    "admin",
    "local",
    "expired",
    "forged",
    "revoked",
)
KNOWN = CALLERS[1:7]
SUBMIT = {"account": "lab.language", "gpus": 1, "argv": ["true"], "min_runtime": "1h"}
SLICES = {"id": "x", "account": "none", "until_at": 0, "slices": [{"model": "gpu", "microseconds": 1}]}
STALE = {"reason": "test", "version": 999}


def everybody(status):
    return dict.fromkeys(CALLERS, status)


def known(status=200, **others):
    """Everybody who is known gets a status, the others 401; exceptions by name."""
    return dict.fromkeys(CALLERS, 401) | dict.fromkeys(KNOWN, status) | others


def admins(status):
    return known(403, admin=status, local=status)


def owners(status):
    return known(403, owner=status, admin=status, local=status)


#: method, route, path, body, status by caller. {job}: a job of `author` in lab.vision.train.
TABLE = [
    ("GET", "/v1/health", None, None, everybody(200)),
    ("GET", "/v1/status", None, None, known()),
    ("GET", "/metrics", None, None, known()),
    ("GET", "/v1/queue", None, None, known()),
    ("GET", "/v1/jobs", None, None, known()),
    # lab.language is given to `submitter` only; the author's token is for lab.vision, the owner's for nothing.
    ("POST", "/v1/jobs", None, SUBMIT, known(403, submitter=201, admin=201, local=201)),
    ("GET", "/v1/jobs/{job}", None, None, known()),
    ("GET", "/v1/jobs/{job}/explain", None, None, known()),
    ("GET", "/v1/jobs/{job}/logs", None, None, known(403, author=200, owner=200, admin=200, local=200)),
    ("DELETE", "/v1/jobs/{job}", None, None, known(403, author=202, owner=202, admin=202, local=202)),
    # 503 and 404 show that the caller got past the role: the fixture has no topology.
    ("POST", "/v1/pair", None, {"prefill": ["h0"], "decode": ["h1"], "kv_bytes": 1}, known(503, viewer=403)),
    ("DELETE", "/v1/pair/{name}", "/v1/pair/none", None, known(404, viewer=403)),
    # 404 shows that the caller got past the role: no such account.
    ("POST", "/v1/slices", None, SLICES, owners(404)),
    ("GET", "/v1/budget", None, None, known()),
    ("GET", "/v1/budget/history", None, None, known()),
    # A stale version shows that the caller got past the role; who may change what is in test_budgets.py.
    ("PUT", "/v1/budget", None, {"document": {"accounts": {"x": {"share": 1}}}, **STALE}, owners(409)),
    ("PATCH", "/v1/budget/accounts/{path}", "/v1/budget/accounts/lab", {"share": 1, **STALE}, owners(409)),
    ("GET", "/v1/statement", None, None, known()),
    ("POST", "/v1/nodes/{name}/drain", "/v1/nodes/none/drain", {"reason": "test"}, admins(404)),
    ("DELETE", "/v1/nodes/{name}/drain", "/v1/nodes/none/drain", None, admins(404)),
    ("POST", "/v1/nodes/{name}/fault", "/v1/nodes/none/fault", {"code": "xid-79"}, admins(404)),
    ("DELETE", "/v1/nodes/{name}/fault", "/v1/nodes/none/fault", None, admins(404)),
    ("GET", "/v1/decisions", None, None, known()),
    ("GET", "/v1/decisions/{seq}", "/v1/decisions/1", None, known()),
    ("GET", "/v1/tokens", None, None, admins(200)),
    ("POST", "/v1/tokens", None, {"user": "x", "role": "viewer"}, admins(201)),
    ("DELETE", "/v1/tokens/{token}", "/v1/tokens/none", None, admins(404)),
    ("GET", "/v1/me", None, None, known()),
    ("GET", "/v1/policies", None, None, known()),
    ("GET", "/v1/claims", None, None, known()),
    ("GET", "/v1/trace", None, None, known()),
    # Nothing to replay with stands behind this API: 503 says that everybody known got so far.
    ("POST", "/v1/whatif", None, {}, known(503)),
    ("GET", "/v1/shown", None, None, known()),
    ("PUT", "/v1/shown/{name}", "/v1/shown/x", {"document": {"schema": "none/1"}}, admins(422)),
    ("GET", "/v1/shown/{name}", "/v1/shown/none", None, known(404)),
    ("GET", "/v1/shown/{name}/picture", "/v1/shown/none/picture", None, known(404)),
    ("DELETE", "/v1/shown/{name}", "/v1/shown/none", None, admins(404)),
    ("GET", "/openapi.json", None, None, everybody(200)),
]
#: Checked elsewhere: the stream never ends by itself (test_stream.py), the page has no secret (web tests).
ELSEWHERE = {"/v1/stream", "/", "/web/{name:path}"}


@pytest.fixture(scope="module")
def callers(shared_api):
    world = shared_api.world
    author = world.token("eve", "submitter", ["lab.vision"])
    gone = world.token("gone", "admin")
    world.tokens.revoke(gone.split("_")[1], 1)
    real = world.token("real", "admin")
    tokens = {
        "nobody": None,
        "viewer": world.token("vic", "viewer"),
        "submitter": world.token("sam", "submitter", ["lab.language"]),
        "author": author,
        "owner": world.token("vera", "owner"),
        "admin": world.token("adam", "admin"),
        "expired": world.token("old", "admin", expires=1),
        "forged": real[:-4] + ("AAAA" if not real.endswith("AAAA") else "BBBB"),
        "revoked": gone,
    }
    return {name: shared_api.remote(token) for name, token in tokens.items()} | {"local": shared_api.local}


@pytest.fixture
def job(shared_api, callers):
    """A fresh running job of the author, with a log."""
    made = shared_api.submit(callers["author"], account="lab.vision.train")["id"]
    shared_api.wait_state(made, "protected")
    place = shared_api.world.home / "jobs" / made / "1"
    place.mkdir(parents=True)
    (place / "stdout").write_text("hello\n")
    yield made
    shared_api.local.delete(f"/v1/jobs/{made}")
    shared_api.wait_state(made, "cancelled")


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]} {row[1]}")
def test_each_caller_gets_what_the_table_says(shared_api, callers, request, row):
    method, route, path, body, expected = row
    job = request.getfixturevalue("job") if "{job}" in route else ""
    found = {}
    for caller in CALLERS:  # those who may cancel do so one after the other: a cancellation may be repeated
        answer = callers[caller].request(method, (path or route).format(job=job), json=body)
        found[caller] = answer.status_code
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["faults"], "every refusal says what is wrong"
        if answer.status_code == 201 and "argv" in answer.json():
            shared_api.local.delete(f"/v1/jobs/{answer.json()['id']}")
    if method == "DELETE" and route == "/v1/jobs/{job}":  # once it is over there is nothing to cancel
        found = {caller: 202 if status == 409 else status for caller, status in found.items()}
    assert found == expected


def test_no_route_is_missing_from_the_table(shared_api):
    routes = {
        (method, path)
        for path, item in shared_api.app.openapi()["paths"].items()
        for method in map(str.upper, item)
    }
    listed = {(method, route) for method, route, *_ in TABLE}
    assert routes - listed == {("GET", "/v1/stream")}
    hidden = {route.path for route in shared_api.app.routes if not getattr(route, "include_in_schema", True)}
    assert hidden <= ELSEWHERE | {"/openapi.json"}


def test_the_stream_needs_a_token_too(shared_api, callers):
    assert callers["nobody"].get("/v1/stream").status_code == 401
    assert callers["forged"].get("/v1/stream").status_code == 401


def test_an_unknown_token_and_a_forged_one_get_the_same_answer(shared_api, callers):
    unknown = shared_api.remote("divvy_000000000000_" + "A" * 43).get("/v1/status").json()
    assert (
        unknown == callers["forged"].get("/v1/status").json() == callers["revoked"].get("/v1/status").json()
    )


def test_what_an_author_wrote_is_hidden_from_the_others(shared_api, callers, job):
    seen = {caller: callers[caller].get(f"/v1/jobs/{job}").json() for caller in KNOWN}
    assert {caller for caller in KNOWN if seen[caller]["argv"] is not None} == {
        "author",
        "owner",
        "admin",
        "local",
    }
    for caller in ("viewer", "submitter"):
        hidden = seen[caller]
        assert (hidden["name"], hidden["cwd"], hidden["env"], hidden["note"]) == ("", None, None, "")
        assert (hidden["account"], hidden["author"], hidden["gpus"]) == ("lab.vision.train", "eve", 1)


def test_health_tells_strangers_nothing_but_that_it_works(shared_api, callers):
    told = {caller: callers[caller].get("/v1/health").json() for caller in ("nobody", "viewer", "admin")}
    assert told["nobody"]["age_seconds"] is told["nobody"]["home"] is None
    assert told["viewer"]["age_seconds"] >= 0
    assert told["viewer"]["home"] is None
    assert told["admin"]["home"] == str(shared_api.world.home)


def test_a_token_works_over_the_unix_socket_too_and_then_counts(shared_api, callers):
    header = {"Authorization": callers["viewer"].headers["Authorization"]}
    assert shared_api.local.get("/v1/tokens", headers=header).status_code == 403
