"""Profiles measured on a small Open Inference Protocol server that really sleeps; plus the whole command line."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from divvy.cli.slices import verb
from divvy.errors import DivvyError
from divvy.perf.profile_csv import read_profile

pytestmark = pytest.mark.e2e


class Handler(BaseHTTPRequestHandler):
    """A model of two inputs that takes 4 ms and 1 ms per item, and has no memory for 16."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/v2/models/toy":
            inputs = [
                {"name": "x", "datatype": "FP32", "shape": [-1, 4]},
                {"name": "ids", "datatype": "INT64", "shape": [-1, -1]},
            ]
            self.answer(200, {"name": "toy", "inputs": inputs, "outputs": []})
        else:
            self.answer(404, {"error": "no such model"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        batch = body["inputs"][0]["shape"][0]
        if len(body["inputs"][0]["data"]) != batch * 4 or len(body["inputs"][1]["data"]) != batch * 2:
            self.answer(400, {"error": "shape"})
        elif batch >= 16:
            self.answer(500, {"error": "out of memory"})
        else:
            time.sleep(0.004 + 0.001 * batch)
            self.answer(200, {"outputs": []})


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{made.server_address[1]}"
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_server_is_measured_and_its_profile_can_be_planned_with(server, tmp_path, socket_enabled):
    path = tmp_path / "toy.csv"
    arguments = ["profile", "--server", server, "--model", "toy", "--batches", "1,4,8,16", "--repeats", "15"]
    done = CliRunner().invoke(
        verb, [*arguments, "--slice", "7g.80gb", "--free-dimension", "2", "--output", str(path), "--json"]
    )
    assert done.exit_code == 0, done.output
    rows = {row["batch"]: row for row in json.loads(done.output)["rows"]}
    assert 5 <= rows[1]["latency_ms"] < 60
    assert 12 <= rows[8]["latency_ms"] < 90
    assert rows[16]["latency_ms"] is None
    assert "out of memory" in rows[16]["refusal"]
    profile = read_profile(path.read_text(), "toy")
    assert profile.batches(7) == (1, 4, 8)
    plan = CliRunner().invoke(
        verb,
        [
            *["plan", "--profile", str(path), "--batch", "uniform:1-8", "--slo-ms", "200", "--seeds", "1"],
            *["--queries", "1000", "--planner", "homogeneous:7", "--dispatcher", "fifs", "--json"],
        ],
    )
    assert plan.exit_code == 0, plan.output
    assert json.loads(plan.output)["rate_qps"] > 5


def test_refusals_are_clear(server, socket_enabled):
    for arguments, code in (
        (["--server", server, "--model", "nope"], "oip-model"),
        (["--server", "http://127.0.0.1:9", "--model", "toy"], "oip-unreachable"),
        (["--server", server, "--model", "toy", "--batches", "x"], "batches"),
        (["--server", server], "missing"),
    ):
        done = CliRunner().invoke(verb, ["profile", *arguments])
        assert isinstance(done.exception, DivvyError)
        assert done.exception.code == code
