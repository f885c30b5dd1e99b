"""`divvy serve` with tokens, TLS, refusals and its administration, before slices that run."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import ssl
import subprocess
import sys

import httpx
import pytest

from divvy.adapters.lab.lab import Lab
from divvy.adapters.lab.spec import SliceSpec
from divvy.cli.lab_backends import write_backends

pytestmark = [pytest.mark.e2e, pytest.mark.enable_socket]

INFER = "/v2/models/m/infer"
BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [0.0]}]}
USER, ADMIN = {"Authorization": "Bearer of-team"}, {"Authorization": "Bearer of-ops"}


def command(home, *more):
    return [sys.executable, "-m", "divvy", "serve", "--backends", str(home / "b.json"), *more]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    path = tmp_path_factory.mktemp("guarded")
    (path / "m.csv").write_text("model,slice,batch,latency_ms\nm,1,1,10\nm,3,1,5\n")
    rows = [("team", "of-team", ""), ("ops", "of-ops", "admin = true\n")]
    (path / "t.toml").write_text(
        "".join(
            f'[accounts.{name}]\nsha256 = ["{hashlib.sha256(token.encode()).hexdigest()}"]\n{more}'
            for name, token, more in rows
        )
    )
    lab = Lab()
    lab.start([SliceSpec(f"s{g}", 0, f"{g}g.10gb", g, g, "m", (-1, 10_000 // g)) for g in (1, 3)])
    write_backends(path / "b.json", list(lab.slices.values()), str(path / "m.csv"), 100.0)
    yield path
    lab.close()


@pytest.fixture(scope="module")
def certificate(home):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificate to test TLS with")
    made = (home / "cert.pem", home / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-out", made[0], "-keyout", made[1]],
        check=True, capture_output=True,
    )  # fmt: skip
    return made


@pytest.fixture(scope="module")
def client(home, certificate):
    options = ("--port", "0", "--refuse-late", "--tokens", str(home / "t.toml"))
    tls = ("--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1]))
    process = subprocess.Popen(command(home, *options, *tls), stdout=subprocess.PIPE, text=True)
    url = process.stdout.readline().strip()
    assert url.startswith("https://")
    with httpx.Client(base_url=url, verify=ssl.create_default_context(cafile=certificate[0])) as one:
        yield one
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0
    process.stdout.close()


def test_a_token_is_asked_for_and_its_account_charged(client):
    assert client.get("/v2/health/live").status_code == 200
    refused = client.post(INFER, json=BODY)
    assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
    assert client.post(INFER, json=BODY, headers=USER).status_code == 200
    text = client.get("/metrics", headers=USER).text
    charged = text.split('divvy_serve_account_slice_seconds_total{account="team"} ')[1].split()[0]
    assert 0.005 < float(charged) < 5


def test_slices_are_held_back_and_admitted_by_administrators_only(client):
    assert client.get("/divvy/v1/backends", headers=USER).status_code == 403
    assert client.post("/divvy/v1/backends/none/drain", headers=ADMIN).status_code == 404
    assert client.get("/divvy/v1/backends/s1/drain", headers=ADMIN).status_code == 405
    held = client.post("/divvy/v1/backends/s1/drain", headers=ADMIN).json()
    assert held["schema"] == "divvy.serve.status/1"
    rows = {row["name"]: row for row in held["backends"]}
    assert rows["s1"]["state"] == "held" and rows["s3"]["state"] == "up"
    for _ in range(3):
        answer = client.post(INFER, json=BODY, headers=USER | {"x-divvy-explain": "1"})
        assert json.loads(answer.headers["divvy-decision"])["slice"] == "s3"
    admitted = client.post("/divvy/v1/backends/s1/admit", headers=ADMIN).json()
    assert {row["state"] for row in admitted["backends"]} == {"up"}


def test_what_cannot_be_in_time_is_refused_at_once(client):
    refused = client.post(INFER, json=BODY, headers=USER | {"x-divvy-slo-ms": "1"})
    assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
    assert "too late" in refused.json()["error"]


def test_check_says_good_or_names_every_fault(home):
    good = subprocess.run(command(home, "--check"), capture_output=True, text=True, check=False)
    assert good.returncode == 0 and "2 slices of m" in good.stdout
    wrong = (
        "--check",
        "--rule",
        "none",
        "--longest-wait",
        "5",
        "--max-body",
        "1",
        "--tls-key",
        "x",
        "--tokens",
        "no",
    )
    bad = subprocess.run(command(home, *wrong), capture_output=True, text=True, check=False)
    assert bad.returncode != 0 and "Traceback" not in bad.stderr
    for word in ("--longest-wait", "--max-body", "--tls-cert", "no dispatcher", "no file no"):
        assert word in bad.stderr, bad.stderr


def test_the_whole_set_of_slices_is_replaced_by_administrators_only(client, home):
    document = json.loads((home / "b.json").read_text())
    address = "/divvy/v1/backends"
    assert client.put(address, json=document, headers=USER).status_code == 403
    one = {**document, "slices": [row for row in document["slices"] if row["gpcs"] == 3]}
    told = client.put(address, json=one, headers=ADMIN).json()
    assert [row["gpcs"] for row in told["backends"]] == [3]
    for wrong in ({**document, "model": "other"}, {**document, "slices": 3}, [], {**one, "slo_ms": -1}):
        assert client.put(address, json=wrong, headers=ADMIN).status_code == 400
    two = {**document, "slices": [{**document["slices"][0], "gpcs": 2}]}
    assert client.put(address, json=two, headers=ADMIN).status_code == 400
    assert client.put(address, content=b"\xff", headers=ADMIN).status_code == 400
    assert len(client.get(address, headers=ADMIN).json()["backends"]) == 1
    assert len(client.put(address, json=document, headers=ADMIN).json()["backends"]) == 2
