"""What people are told of a real control plane: notices over kills, start intervals, statements that add up."""

import json
import signal
import sys

import pytest

pytestmark = pytest.mark.e2e

HOOK = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"


def notices(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_notices_start_intervals_and_statements_over_a_kill(make_plane, tmp_path):
    out, file = tmp_path / "told", tmp_path / "notify.toml"
    command = json.dumps([sys.executable, "-c", HOOK, str(out)])
    file.write_text(
        f'[[receiver]]\nname = "file"\ncommand = {command}\nthresholds = [1]\n'
        '[[receiver]]\nname = "dead"\nurl = "http://127.0.0.1:9/"\n'
    )
    plane = make_plane("--notify", str(file)).start()
    first = plane.submit("/bin/false")
    plane.until(lambda: plane.over(first))
    plane.until(lambda: [one for one in notices(out) if one.get("job") == first])
    held = plane.submit("/bin/sleep", "300", gpus=4, min_runtime="1h")
    plane.until(lambda: plane.job(held)["started_at"])
    waiting = plane.submit("/bin/true", gpus=4, min_runtime="1h")
    found = plane.until(lambda: plane.client.get("jobs", waiting, "explain", start=True)["start"], 60)
    assert found["p50_at"] <= found["p90_at"]
    assert found["futures"] > 0
    plane.stop(signal.SIGKILL)
    plane.start(wait=False)
    plane.until(lambda: plane.output().count("Divvy is up") == 2, 60)
    plane.client.delete("jobs", held)
    plane.until(lambda: plane.over(waiting), 60)
    plane.until(lambda: {first, held, waiting} <= {one.get("job") for one in notices(out)}, 60)
    told = notices(out)
    assert {one["kind"] for one in told} >= {"finished"}
    twice = {one["id"] for one in told if [other["id"] for other in told].count(one["id"]) > 1}
    assert len(twice) <= 1, "only what was under way when it was killed may come again"
    statement = plane.client.get("statement", trace=True)
    rows = {row["account"]: row for row in statement["rows"]}
    for hour, *parts in zip(
        *(rows[name]["hours"] for name in ("lab", "lab.vision", "lab.language")), strict=True
    ):
        for figure in ("demand", "owed", "delivered", "carried", "unallocated", "protected", "lost"):
            assert hour[figure] == pytest.approx(sum(part[figure] for part in parts), abs=1e-9)
    charges = [run["charge"] for run in statement["sources"]["runs"] if run["allocated"]]
    assert rows["lab"]["charged"] == sum(charges)
