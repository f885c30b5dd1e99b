"""`divvy plan` and `divvy apply` on a running control plane: services hold real processes under a budget."""

import json
import sys

import pytest

from divvy.cli import main

pytestmark = pytest.mark.e2e

SERVICES = """
[[services]]
name = "images"
account = "lab.language"
sku = "A100-80GB"
model = "any"
profile = "fitted:resnet50"
batch = "fixed:4"
rate_qps = RATE
slo = 60
most = 3
command = ["sleep", "600"]
"""


@pytest.fixture
def ask(plane, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "services.toml"

    def run(verb, *words, rate=None, services=True):
        if rate is not None:
            file.write_text(SERVICES.replace("RATE", str(rate)), encoding="utf-8")
        line = ["divvy", verb, "--home", str(plane.home), "--json", *words]
        line += ["--services", str(file)] if services else []
        if verb == "apply":
            line += ["--server", f"unix:{plane.home / 'socket'}"]
        monkeypatch.setattr(sys, "argv", line)
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, json.loads(out or err)

    return run


def leases(plane):
    jobs = plane.client.get("jobs", limit=50)["jobs"]
    return [job for job in jobs if job["name"] == "service:images" and job["ended_at"] is None]


def test_leases_of_a_service_are_jobs_that_come_and_go_with_its_rate(plane, ask):
    assert ask("plan", services=False)[0] == 0
    code, planned = ask("plan", rate=1_000)
    assert code == 1
    count = planned["services"][0]["wanted_gpus"]
    assert len(planned["jobs"]["start"]) == count >= 2
    code, done = ask("apply", "--version", str(planned["version"]))
    assert (code, done["schema"]) == (0, "divvy.apply/1")
    assert len(done["left"]) == count  # GPUs that somebody has to cut
    running = plane.until(
        lambda: [job for job in leases(plane) if job["started_at"] is not None][count - 1 :]
    )
    assert running
    held = leases(plane)
    # 40% of four devices: one is charged, the others are lent.
    assert sorted(job["allocated"] for job in held) == [False] * (count - 1) + [True]

    code, stale = ask("apply", "--version", str(planned["version"]))
    assert (code, stale["code"]) == (2, "plan-stale")
    code, again = ask("plan")
    assert (code, again["changes"]) == (0, 0)

    # What was lent is taken back by a job that is charged, at once.
    job = plane.submit("sleep", "60", gpus=3)
    plane.until(lambda: plane.job(job)["started_at"] is not None)
    assert [one["allocated"] for one in leases(plane) if one["state"] in ("protected", "interruptible")] == [
        True
    ]
    plane.client.delete("jobs", job)

    planned = ask("plan", rate=0)[1]
    assert ask("apply", "--version", str(planned["version"]))[0] in (0, 2)
    for _ in range(5):
        planned = ask("plan", rate=0)[1]
        if not leases(plane):
            break
        ask("apply", "--version", str(planned["version"]))
    plane.until(lambda: not leases(plane))
