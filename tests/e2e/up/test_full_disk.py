"""A disk that fills up under a running control plane, and gets space again."""

import os
import subprocess
import time

import pytest

from divvy.errors import DivvyError

pytestmark = pytest.mark.e2e


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, small enough to fill."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0755", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a small file system")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk):
    """Leave no byte free."""
    with (disk / "filler").open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def stored(plane, **body):
    try:
        return plane.client.post("jobs", body=body)
    except DivvyError as error:
        return error


def test_a_full_disk_stops_decisions_says_so_and_is_recovered_from(make_plane, small_disk):
    plane = make_plane(home=small_disk / "h").start()
    short = plane.submit("/bin/sh", "-c", "sleep 2; exit 5")
    long = plane.submit("/bin/sleep", "300")
    plane.until(lambda: plane.started(short) and plane.started(long))
    fill(small_disk)
    # a job that ends is an event that cannot be recorded
    health = plane.until(lambda: (h := plane.health()) and h.state == "stalled" and h)
    assert "no space left" in health.problem
    told = plane.client.get("health")
    assert told["status"] != "ok"
    body = {"account": "lab.vision", "gpus": 1, "argv": ["/bin/true"], "cwd": "/", "min_runtime": "1m"}
    refused = [each for _ in range(50) if isinstance(each := stored(plane, **body), DivvyError)]
    assert refused, "an answer was given for what could not be stored"
    assert {error.code for error in refused} == {"store-full"}
    assert plane.job(long)["state"] == "protected"  # what is known can still be read
    loop = plane.child("loop").pid
    time.sleep(1.5)
    assert plane.health().seq == health.seq
    (small_disk / "filler").unlink()
    plane.until(lambda: plane.health().state == "running")
    assert plane.child("loop").pid == loop  # it went on
    assert plane.until(lambda: plane.over(short))["exit_code"] == 5
    after = plane.submit("/bin/true")
    assert plane.until(lambda: plane.over(after))["exit_code"] == 0
    assert plane.job(long)["attempt"] == 1
    plane.client.delete("jobs", long)
    plane.until(lambda: plane.over(long))
    plane.stop()
