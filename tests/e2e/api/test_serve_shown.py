"""A router that runs shows itself to a control plane, and says its end."""

import signal
import subprocess
import sys
import time

import httpx
import pytest

from divvy.adapters.lab.lab import Lab
from divvy.adapters.lab.spec import SliceSpec
from divvy.cli.lab_backends import write_backends

pytestmark = [pytest.mark.e2e, pytest.mark.enable_socket]

BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [0.0]}]}


@pytest.fixture
def backends(tmp_path):
    (tmp_path / "m.csv").write_text("model,slice,batch,latency_ms\nm,1,1,10\nm,3,1,5\n")
    lab = Lab()
    lab.start([SliceSpec(f"s{g}", 0, f"{g}g.10gb", g, g, "m", (-1, 10_000 // g)) for g in (1, 3)])
    write_backends(tmp_path / "b.json", list(lab.slices.values()), str(tmp_path / "m.csv"), 5000.0)
    yield tmp_path / "b.json"
    lab.close()


def until(api, good, seconds=30):
    """Return the document shown once it is as it should be."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = api.local.get("/v1/shown/serve-m")
        if answer.status_code == 200 and good(answer.json()["document"]):
            return answer.json()
        time.sleep(0.2)
    pytest.fail(f"not shown in {seconds} s: {answer.text[:300]}")


def test_a_router_is_shown_while_it_serves_and_its_end_is_said(api, backends):
    command = [sys.executable, "-m", "divvy", "serve", "--backends", str(backends), "--port", "0"]
    with subprocess.Popen(
        [*command, "--publish", f"unix:{api.path}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        url = process.stdout.readline().strip()
        for _ in range(5):
            assert httpx.post(f"{url}/v2/models/m/infer", json=BODY, timeout=20).status_code == 200
        shown = until(api, lambda document: document["models"][0]["met"] == 5)
        document = shown["document"]
        assert (shown["view"], shown["title"], document["state"]) == ("serving", f"m at {url}", "serving")
        assert {row["name"]: row["state"] for row in document["backends"]} == {"s1": "up", "s3": "up"}
        assert document["models"][0]["attainment"] == 1.0
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    assert until(api, lambda document: document["state"] == "ended")["document"]["models"][0]["met"] == 5


def test_a_router_serves_though_nobody_takes_what_it_shows_and_says_so_once(backends, tmp_path):
    command = [sys.executable, "-m", "divvy", "serve", "--backends", str(backends), "--port", "0"]
    with subprocess.Popen(
        [*command, "--publish", f"unix:{tmp_path}/none"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        url = process.stdout.readline().strip()
        assert httpx.post(f"{url}/v2/models/m/infer", json=BODY, timeout=20).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr.read().count("not shown on the page") == 1


def test_a_name_that_no_page_can_have_is_refused(backends):
    command = [sys.executable, "-m", "divvy", "serve", "--backends", str(backends), "--check"]
    more = ["--publish", "unix:/none", "--publish-as", "../x"]
    ran = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and "serve-publish" in ran.stderr
