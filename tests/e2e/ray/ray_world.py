"""A real Ray cluster on this machine, and a real `divvy up` on it."""

import contextlib
import math
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil

from divvy.cli.client import Client, Target
from divvy.errors import DivvyError

BUDGET = """
[policy]
lookback = "10m"
taper = "1m"
patience = "1s"
debug_patience = "1s"
floor = 0.5
margin = 0.01
[accounts.lab]
share = 100
[accounts.lab.vision]
share = 4
[accounts.lab.language]
share = 96
"""


def free_port(host):
    with socket.socket() as listener:
        listener.bind((host, 0))
        return listener.getsockname()[1]


class Cluster:
    """Nodes of two GPUs each; 127.0.0.1 will not do, since Ray replaces it by the machine's own address."""

    def __init__(self, directory):
        self.directory = directory
        self.environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RAY_USAGE_STATS_ENABLED": "0",
            # Workers in advance are a Python process per CPU and job; no job here has a second task.
            "RAY_prestart_worker_first_driver": "0",
            "RAY_enable_worker_prestart": "0",
        }
        self.environment.pop("RAY_ADDRESS", None)

    def start(self, head, others):
        port, page = free_port("127.0.0.2"), free_port("127.0.0.1")
        self.address = f"http://127.0.0.1:{page}"
        self.gcs = f"127.0.0.2:{port}"
        at = ("--head", f"--port={port}", "--dashboard-host=127.0.0.1", f"--dashboard-port={page}")
        self._node(head, 2, *at, f"--temp-dir={self.directory}")
        for place, name in enumerate(others, start=3):  # two at once get in each other's way
            self._node(name, place, f"--address={self.gcs}")

    def _node(self, name, place, *options):
        with (self.directory / f"{name}.out").open("wb") as out:
            done = subprocess.run(
                [
                    str(Path(sys.executable).parent / "ray"),
                    "start",
                    f"--node-ip-address=127.0.0.{place}",
                    f"--node-name={name}",
                    f"--dashboard-agent-listen-port={free_port(f'127.0.0.{place}')}",
                    "--num-gpus=2",
                    "--num-cpus=2",
                    "--object-store-memory=80000000",
                    "--disable-usage-stats",
                    *options,
                ],
                env=self.environment,
                stdout=out,
                stderr=out,
                timeout=120,
                check=False,
            )
        assert done.returncode == 0, (self.directory / f"{name}.out").read_text()

    def stop(self):
        """End this cluster's processes, and no other's."""
        marks = (f"{self.directory}/", self.gcs)
        ours = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and any(m in w for w in process.cmdline() for m in marks):
                    ours.append(process)
        for process in ours:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(ours, timeout=10)

    def jobs(self):
        """Return Ray's jobs by the Divvy job they are of, in order of their begin."""
        listed = httpx.get(f"{self.address}/api/jobs/", timeout=30).json()
        found = {}
        for job in sorted(listed, key=lambda job: job["start_time"]):
            if job["metadata"]:
                found.setdefault(job["metadata"]["divvy_job"], []).append(job)
        return found

    def began(self):
        """Return since when the devices of each run were held, as Ray tells it."""
        query = "detail=1&limit=10000"
        answer = httpx.get(f"{self.address}/api/v0/placement_groups?{query}", timeout=30).json()
        return {
            group["name"]: int(group["stats"]["creation_request_received_ns"]) // 1_000_000
            + math.ceil(int(group["stats"]["end_to_end_creation_latency_us"]) / 1_000)
            for group in answer["data"]["result"]["result"]
        }


class Plane:
    """One state directory, and the `divvy up --engine ray` on it."""

    def __init__(self, cluster, home):
        self.cluster = cluster
        self.home = home
        self.budget = home.parent / f"{home.name}.toml"
        self.budget.write_text(BUDGET)
        self.client = Client(Target("test", home / "socket"))
        self.process = None
        self.starts = 0
        self.submitted = []

    def start(self):
        command = [sys.executable, "-m", "divvy", "up", "--home", str(self.home), "--no-browser"]
        command += ["--port", "0", "--engine", "ray", "--ray-address", self.cluster.address]
        with (self.home.parent / f"{self.home.name}.out").open("ab") as out:
            self.process = subprocess.Popen(
                [*command, "--budget", str(self.budget)], stdout=out, stderr=out, start_new_session=True
            )
        self.starts += 1
        self.until(self._sees_nodes, 90)
        return self

    def _sees_nodes(self):
        said = (self.home.parent / f"{self.home.name}.out").read_text()
        assert self.process.poll() is None, said
        if (
            said.count("Divvy is up") < self.starts
        ):  # the API of one that was killed may answer a moment longer
            return False
        try:
            return len(self.client.get("status")["nodes"]) == 2
        except (DivvyError, KeyError):
            return False

    def kill(self):
        """End the control plane as a crash of the machine's memory would: all its processes, at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self):
        """End the control plane."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
        if self.process.poll() is None:
            self.kill()

    def submit(self, job, account, command, *options):
        base = [sys.executable, "-m", "divvy", "submit", "--id", job, "--account", account, "--no-env"]
        where = os.environ | {"DIVVY_HOME": str(self.home)}
        shell = ["--env", f"PATH={os.environ['PATH']}", "--cwd", str(self.home), "--", "bash", "-c", command]
        done = subprocess.run(
            [*base, *options, *shell], env=where, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        self.submitted.append(job)

    def clear(self):
        """End the jobs of a test that failed."""
        jobs, self.submitted = self.submitted, []
        for job in jobs:
            self.cancel(job)
        for job in jobs:
            self.until_state(job, "finished", "failed", "cancelled", "preempted")

    def job(self, job):
        return self.client.get("jobs", job)

    def cancel(self, job):
        with contextlib.suppress(DivvyError):
            self.client.delete("jobs", job)

    @staticmethod
    def until(condition, seconds, step=0.3):
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < end, f"not within {seconds} s: {condition}"
            time.sleep(step)
        return found

    def log(self, job, attempt):
        return (self.home / "jobs" / job / str(attempt) / "stdout").read_text()

    def until_ledger_is_rays(self, runs):
        """Compare what is charged for the jobs of a test with Ray's own times, to the millisecond, run by run."""

        def equal():
            with contextlib.closing(sqlite3.connect(self.home / "divvy.db", timeout=10)) as connection:
                rows = connection.execute(
                    "select job, started, ended from ledger where cause = 'occupancy'"
                ).fetchall()
            ours = [row for row in rows if row[0] in self.submitted]
            began = self.cluster.began()
            theirs = [
                (name, began[job["submission_id"]], job["end_time"])
                for name, jobs in self.cluster.jobs().items()
                for job in jobs
                if job["submission_id"] in began and name in self.submitted
            ]
            self.difference = sorted(ours), sorted(theirs)
            return len(ours) == runs and sorted(ours) == sorted(theirs)

        try:
            self.until(equal, 30)
        except AssertionError:
            raise AssertionError(f"{runs} runs; ledger and Ray: {self.difference}") from None

    def until_state(self, job, *states, seconds=90):
        def reached():
            return (found := self.job(job))["state"] in states and found

        return self.until(reached, seconds)
