"""Slice servers of the lab: each as fast as its slice, one query at a time, ended alone or all together."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time

import httpx
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.enable_socket]

PROFILE = """model,slice,batch,latency_ms
toy,1,1,40
toy,1,2,80
toy,1,4,0
toy,7,1,10
toy,7,2,20
toy,7,4,40
"""


def body(batch, name="a"):
    return {
        "id": name,
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [batch, 1], "data": [0.0] * batch}],
    }


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    table = tmp_path_factory.mktemp("lab") / "toy.csv"
    table.write_text(PROFILE)
    command = [sys.executable, "-m", "divvy", "lab", "slices", "--layout", "7,1", "--profile", str(table)]
    process = subprocess.Popen([*command, "--apart", "--json"], stdout=subprocess.PIPE, text=True)
    try:
        yield json.loads(process.stdout.readline()), process
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        process.stdout.close()


def test_every_slice_answers_the_protocol_and_says_that_it_is_emulated(lab):
    document, _ = lab
    assert document["emulated"] and [s["gpcs"] for s in document["slices"]] == [7, 1]
    with httpx.Client(base_url=document["slices"][0]["url"]) as client:
        assert client.get("/v2/health/ready").json() == {"ready": True}
        assert client.get("/v2").json()["emulated"] is True
        assert client.get("/v2/models/toy").json()["inputs"][0]["shape"] == [-1, -1]
        assert client.get("/v2/models/other").status_code == 404
        answer = client.post("/v2/models/toy/infer", json=body(2, "q")).json()
        assert answer["id"] == "q" and answer["outputs"][0]["shape"] == [2, 1]
        assert answer["parameters"]["slice"] == document["slices"][0]["name"]
        assert 'divvy_lab_items_total{slice="gpu0-7g.80gb-0",gpcs="7"} 2' in client.get("/metrics").text


def test_a_batch_comes_in_a_binary_request_too_and_one_that_does_not_fit_is_refused(lab):
    document, _ = lab
    head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 1]}]}).encode()
    with httpx.Client(base_url=document["slices"][1]["url"]) as client:
        path = "/v2/models/toy/infer"
        length = {"Inference-Header-Content-Length": str(len(head))}
        assert client.post(path, content=head + bytes(8), headers=length).status_code == 200
        assert client.post(path, json=body(4)).status_code == 400
        assert client.post(path, content=b"{").status_code == 400
        assert client.post(path, json={"inputs": []}).status_code == 400
        assert client.get(path).status_code == 405


def test_a_slice_serves_one_query_at_a_time_in_its_own_time(lab):
    document, _ = lab
    url = document["slices"][1]["url"]
    ends = []

    def ask():
        answer = httpx.post(f"{url}/v2/models/toy/infer", json=body(1)).json()
        ends.append((time.monotonic(), answer["parameters"]))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {parameters["service_us"] for _, parameters in ends} == {40_000}
    assert max(end for end, _ in ends) - begun >= 0.115
    assert any(parameters["queue_us"] for _, parameters in ends)


def test_a_query_whose_client_has_gone_never_runs(lab):
    document, _ = lab
    url = document["slices"][1]["url"]

    def served():
        text = httpx.get(f"{url}/metrics").text
        return int(float(text.split("divvy_lab_queries_total{")[1].split("} ")[1].split()[0]))

    before = served()
    running = threading.Thread(
        target=lambda: httpx.post(f"{url}/v2/models/toy/infer", json=body(2), timeout=5)
    )
    running.start()
    time.sleep(0.02)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{url}/v2/models/toy/infer", json=body(2), timeout=0.02)
    running.join()
    time.sleep(0.12)
    assert served() == before + 1


def test_what_cannot_be_made_is_refused_with_what_is_allowed():
    command = [sys.executable, "-m", "divvy", "lab", "slices", "--profile", "fitted:resnet50", "--json"]
    for wrong, words in (
        (["--layout", "5"], "mig-"),
        (["--layout", "4+4"], "does not fit"),
        (["--layout", "7", "--work", "magic"], "sleep, cpu, triton"),
        (["--layout", "7", "--scale", "0"], "--scale"),
        (["--layout", "no-such-file.json"], "no file"),
    ):
        done = subprocess.run([*command, *wrong], capture_output=True, text=True, check=False)
        assert done.returncode not in {0, 1}, (wrong, done)
        assert words in done.stdout + done.stderr, (wrong, done)
        assert "Traceback" not in done.stderr
