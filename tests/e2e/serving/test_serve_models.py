"""`divvy serve` with two models: each query is answered by a slice of its own model."""

from __future__ import annotations

import json
import subprocess
import sys

import httpx
import pytest

from divvy.adapters.front.config import SCHEMA
from divvy.adapters.lab.lab import Lab
from divvy.adapters.lab.spec import SliceSpec

pytestmark = [pytest.mark.e2e, pytest.mark.enable_socket]


def test_each_model_has_its_own_slices(tmp_path):
    for name, time in (("a", 5), ("b", 9)):
        (tmp_path / f"{name}.csv").write_text(f"model,slice,batch,latency_ms\n{name},1,1,{time}\n")
    lab = Lab()
    lab.start(
        [SliceSpec(f"{n}0", 0, "1g.10gb", i, 1, n, (-1, 5_000)) for i, n in enumerate("ab")], apart=True
    )
    rows = [{"name": n, "url": lab.slices[n].url, "gpcs": 1, "model": n[0]} for n in ("a0", "b0")]
    more = {"b": {"profile": str(tmp_path / "b.csv"), "slo_ms": 90}}
    words = {"schema": SCHEMA, "model": "a", "profile": str(tmp_path / "a.csv"), "slo_ms": 50}
    file = tmp_path / "backends.json"
    file.write_text(json.dumps({**words, "models": more, "slices": rows}))
    command = [sys.executable, "-m", "divvy", "serve", "--backends", str(file), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        with httpx.Client(base_url=process.stdout.readline().strip()) as client:
            query = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [0.0]}]}
            for name, slo in (("a", 50_000), ("b", 90_000), ("a", 50_000)):
                path = f"/v2/models/{name}/infer"
                answer = client.post(path, json=query, headers={"divvy-explain": "1"})
                said = json.loads(answer.headers["divvy-decision"])
                assert (said["slice"], said["slo_us"]) == (f"{name}0", slo)
            unknown = client.post("/v2/models/c/infer", json=query)
            assert unknown.status_code == 404
            assert "'a', 'b'" in unknown.json()["error"]
            figures = client.get("/metrics").text
            assert 'divvy_serve_slice_queries_total{model="a",slice="a0",gpcs="1",state="up"} 2' in figures
            served = {
                r["name"]: (r["model"], r["served"])
                for r in client.get("/divvy/v1/backends").json()["backends"]
            }
            assert served == {"a0": ("a", 2), "b0": ("b", 1)}
    finally:
        process.terminate()
        process.wait(15)
        process.stdout.close()
        lab.close()
