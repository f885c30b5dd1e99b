"""`divvy serve` before real slices: sizes decide, failures are retried, slices come and go, nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import httpx
import numpy as np
import pytest

from divvy.adapters.lab.lab import Lab
from divvy.adapters.lab.spec import SliceSpec
from divvy.adapters.load.openloop import fire_now
from divvy.adapters.load.volley import Plan
from divvy.cli.lab_backends import write_backends

pytestmark = [pytest.mark.e2e, pytest.mark.enable_socket]

PROFILE = "model,slice,batch,latency_ms\nm,1,1,40\nm,1,4,0\nm,3,1,20\nm,3,4,60\nm,7,1,10\nm,7,4,30\n"
TIMES = {1: (-1, 40_000), 3: (-1, 20_000, 33_000, 47_000, 60_000), 7: (-1, 10_000, 17_000, 23_000, 30_000)}
INFER = "/v2/models/m/infer"


def spec(number, gpcs):
    return SliceSpec(f"s{number}", 0, f"{gpcs}g.10gb", number, gpcs, "m", TIMES[gpcs])


def body(batch):
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [batch, 1], "data": [0.0] * batch}]}


class Served:
    def __init__(self, home, rule="divvy"):
        (home / "m.csv").write_text(PROFILE)
        self.file, self.profile, self.rule = home / "backends.json", str(home / "m.csv"), rule
        self.lab = Lab()
        self.lab.start([spec(0, 1), spec(1, 3), spec(2, 7)], apart=True)
        self.write("s0", "s1", "s2")
        command = [sys.executable, "-m", "divvy", "serve", "--backends", str(self.file), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()

    def write(self, *names):
        write_backends(self.file, [self.lab.slices[n] for n in names], self.profile, 100.0, rule=self.rule)

    def states(self):
        rows = httpx.get(f"{self.url}/divvy/slices").json()["slices"]
        return {row["name"]: row["state"] for row in rows}

    def until(self, wanted):
        end = time.monotonic() + 15
        while (states := self.states()) != wanted:
            assert time.monotonic() < end, states
            time.sleep(0.05)

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(15) == 0
        self.process.stdout.close()
        self.lab.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    one = Served(tmp_path_factory.mktemp("serve"))
    yield one
    one.close()


def test_the_batch_decides_and_the_decision_can_be_asked_for(served):
    with httpx.Client(base_url=served.url) as client:
        assert client.get("/v2/health/ready").status_code == 200
        assert client.get("/v2/models/m").json()["name"] == "m"
        small = client.post(INFER, json=body(1), headers={"divvy-explain": "1"})
        assert json.loads(small.headers["divvy-decision"])["slice"] == "s0", "the cheapest slice is in time"
        large = client.post(INFER, json=body(4), headers={"divvy-explain": "1", "divvy-slo-ms": "35"})
        assert json.loads(large.headers["divvy-decision"])["slice"] == "s2", "only the largest is in time"
        assert large.json()["outputs"][0]["shape"] == [4, 1]
        head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [4, 1]}]}).encode()
        binary = client.post(
            INFER, content=head + bytes(16), headers={"Inference-Header-Content-Length": str(len(head))}
        )
        assert binary.status_code == 200
        assert 'divvy_serve_slice_queries_total{slice="s2"' in client.get("/metrics").text


def test_what_is_no_request_is_refused(served):
    with httpx.Client(base_url=served.url) as client:
        assert client.post(INFER, json=body(5)).status_code == 400
        assert client.post(INFER, content=b"{").status_code == 400
        assert client.post(INFER, json=body(1), headers={"divvy-slo-ms": "nan"}).status_code == 400
        assert client.post("/v2/models/other/infer", json=body(1)).status_code == 404
        assert client.get(INFER).status_code == 405
        assert client.get("/nothing").status_code == 404
        assert client.get("/v2", headers={"x": "y" * 40_000}).status_code == 431


def test_a_slice_that_is_killed_under_load_loses_no_query_and_comes_back(served):
    due = np.arange(150) * 20_000
    plan = Plan(due, np.where(np.arange(150) % 3 == 0, 4, 1), INFER)
    port = served.lab.slices["s1"].port
    killer = threading.Timer(1.0, lambda: served.lab.stop(["s1"], at_once=True))
    killer.start()
    volley = fire_now(served.url, plan, patience_seconds=8)
    killer.join()
    assert volley.good.all(), sorted(set(volley.status.tolist()))
    served.until({"s0": "up", "s1": "down", "s2": "up"})
    served.lab.start([spec(1, 3)], ports=[port])
    served.until({"s0": "up", "s1": "up", "s2": "up"})


def test_slices_that_leave_the_file_drain_and_new_ones_serve(served):
    due = np.arange(100) * 20_000
    steps = threading.Timer(0.5, lambda: served.write("s1", "s2"))
    steps.start()
    volley = fire_now(served.url, Plan(due, np.ones(100, np.int64), INFER), patience_seconds=8)
    steps.join()
    assert volley.good.all()
    served.until({"s1": "up", "s2": "up"})
    served.file.write_text("{")
    time.sleep(0.5)
    assert served.states() == {"s1": "up", "s2": "up"}, "a file with faults changes nothing"
    served.write("s0", "s1", "s2")
    served.until({"s0": "up", "s1": "up", "s2": "up"})


def test_clients_that_go_take_their_queries_with_them(served):
    def cancelled():
        text = httpx.get(f"{served.url}/metrics").text
        return int(text.split("\ndivvy_serve_cancelled_total ")[1].split()[0])

    before = cancelled()
    # Others come first and keep the slices busy for a while, so that no answer can be quicker than a client that goes.
    crowd = [threading.Thread(target=_patient, args=(served.url,)) for _ in range(24)]
    for thread in crowd:
        thread.start()
    time.sleep(0.3)
    threads = [threading.Thread(target=_impatient, args=(served.url,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in (*threads, *crowd):
        thread.join()
    end = time.monotonic() + 5
    while cancelled() - before < 6 and time.monotonic() < end:
        time.sleep(0.05)
    assert cancelled() - before == 6
    assert httpx.post(f"{served.url}{INFER}", json=body(1)).status_code == 200


def _patient(url):
    for _ in range(3):
        answer = httpx.post(f"{url}{INFER}", json=body(4), headers={"divvy-slo-ms": "5000"}, timeout=30)
        assert answer.status_code == 200


def _impatient(url):
    with httpx.Client(base_url=url) as client, pytest.raises(httpx.ReadTimeout):
        client.post(
            INFER, json=body(4), headers={"divvy-slo-ms": "60000"}, timeout=httpx.Timeout(5, read=0.01)
        )


def test_a_file_with_faults_names_them_all(tmp_path):
    file = tmp_path / "b.json"
    file.write_text(
        json.dumps(
            {
                "schema": "divvy.serve.backends/1",
                "model": "",
                "profile": "p",
                "slo_ms": -1,
                "slices": [
                    {"name": "a", "gpcs": 1, "url": "ftp://x"},
                    {"name": "b", "gpcs": 0, "url": "http://x"},
                    3,
                ],
            }
        )
    )
    command = [sys.executable, "-m", "divvy", "serve", "--backends", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 2
    for word in ("model", "slo_ms", "slices[0].url", "slices[1].gpcs", "slices[2]"):
        assert word in done.stderr
    assert "Traceback" not in done.stderr
