"""Where Divvy only looks on at a Slurm, requests that would not reach it are refused and change nothing."""

from dataclasses import replace

import pytest

from divvy.adapters.slurm.by_hand import SlurmByHand
from divvy.bootstrap.by_hand import by_hand
from divvy.bootstrap.settings import LiveSettings

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("mode", ["observe", "advise"])
def test_cancel_and_drain_are_refused_with_slurms_own_command(api, mode):
    service = api.app.state.service
    service.backend = replace(service.backend, by_hand=SlurmByHand(mode))
    job = api.submit(id="417")["id"]
    api.wait_state(job, "protected")
    asked = [
        ("DELETE", f"/v1/jobs/{job}", None, "run: scancel 417"),
        (
            "POST",
            "/v1/nodes/n1/drain",
            {"reason": "a fan; it's loud"},
            "run: scontrol update NodeName=n1 State=DRAIN 'Reason=a fan; it'\"'\"'s loud'",
        ),
        ("DELETE", "/v1/nodes/n1/drain", None, "run: scontrol update NodeName=n1 State=RESUME"),
        ("DELETE", "/v1/nodes/n1/fault", None, "run: scontrol update NodeName=n1 State=RESUME"),
        (
            "POST",
            "/v1/nodes/n1/fault",
            {"code": "xid-79", "fatal": True},
            "run: scontrol update NodeName=n1 State=DOWN 'Reason=fault xid-79'",
        ),
    ]
    for method, path, body, fix in asked:
        answer = api.local.request(method, path, json=body)
        assert answer.status_code == 409, answer.text
        (fault,) = answer.json()["faults"]
        assert (fault["code"], fault["fix"]) == ("mode-looks-on", fix)
        assert f"--mode {mode}" in fault["message"]
    assert api.get(f"/v1/jobs/{job}")["state"] == "protected"
    assert {node["state"] for node in api.get("/v1/status")["nodes"]} == {"up"}


def test_a_window_is_a_reservation_and_a_job_that_is_not_slurms_is_divvys():
    hand = SlurmByHand("observe")
    command = hand.drain("node05:v100", "fan", (1_700_000_000_000, 0))
    assert "StartTime=2023-11-1" in command
    assert "Duration=UNLIMITED Nodes=node05 Users=root Flags=MAINT,IGNORE_JOBS" in command
    assert "EndTime=2023-11-1" in hand.drain("n", "fan", (1_700_000_000_000, 1_700_000_060_000))
    assert hand.cancel("17_4@1700000000") == "scancel 17_4"
    assert hand.cancel("j000002k") == ""


def test_only_a_slurm_that_is_not_enforced_is_done_by_hand():
    settings = LiveSettings("/nowhere", "sqlite://", engine="slurm")
    assert by_hand(settings) is None
    assert by_hand(replace(settings, engine="local", mode="observe")) is None
    assert by_hand(replace(settings, mode="advise")).mode == "advise"
