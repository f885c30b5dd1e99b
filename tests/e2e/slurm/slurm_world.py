"""A real Slurm and a real `divvy up` on it."""

import contextlib
import sqlite3
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil

from divvy.adapters.slurm.text import QUEUE, UNIT, read_queue
from divvy.adapters.store.database import open_database
from divvy.adapters.store.intake import IntakeWriter
from divvy.adapters.store.wake import wake
from divvy.cli.client import Client, Target
from divvy.errors import DivvyError
from divvy.units import MINUTE

#: What a test job runs: it says when it is warned, and counts its restarts.
JOB = """#!/bin/bash
trap 'echo "warned restart=${SLURM_RESTART_COUNT:-0}"' USR1
trap 'echo "terminated"' TERM
echo "began restart=${SLURM_RESTART_COUNT:-0} gpus=$CUDA_VISIBLE_DEVICES"
end=$((SECONDS + ${1:-600}))
while [ $SECONDS -lt $end ]; do sleep 0.2; done
echo ended
"""


class World:
    """A sandbox with accounts, and what tests ask of it."""

    def __init__(self, sandbox, directory, heartbeat):
        self.sandbox = sandbox
        self.heartbeat = heartbeat
        self.directory = directory
        self.script = directory / "job.sh"
        self.script.write_text(JOB)
        self.script.chmod(0o755)

    def run(self, *command, check=True):
        return self.sandbox.run(*command, check=check)

    def sbatch(self, account, *options, contract="", seconds=600):
        words = ("--comment", f"divvy: {contract}") if contract else ()
        out = ("-o", f"{self.directory}/%A_%a.out", "--open-mode=append")
        return self.run(
            "sbatch", "--parsable", "-A", account, *out, *words, *options, str(self.script), str(seconds)
        ).split(";")[0]

    def output(self, job):
        path = self.directory / f"{job}_4294967294.out"
        return path.read_text() if path.exists() else ""

    def jobs(self):
        text = subprocess.run(
            QUEUE,
            env={**self.sandbox.environment, "SLURM_TIME_FORMAT": "%s"},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout
        return read_queue(text)

    def state(self, job):
        found = self.jobs().get(job)
        return found.state if found else ""

    def until(self, ask, seconds=30, what=""):
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            found = ask()
            if found:
                return found
            time.sleep(0.2)
        raise AssertionError(f"not within {seconds} s: {what}\n{self.run('squeue', '-a')}")

    def until_state(self, job, state, seconds=30):
        return self.until(lambda: self.state(job) == state, seconds, f"{job} {state}")

    def used(self):
        """Return what the accounting knows: GPU-seconds per job and start, of runs that ended."""
        fields = "JobID,Start,End,ElapsedRaw,AllocTRES"
        env = {**self.sandbox.environment, "SLURM_TIME_FORMAT": "%s"}
        command = (
            "sacct",
            "-D",
            "-X",
            "-n",
            "-P",
            f"--delimiter={UNIT}",
            "-a",
            "-S",
            "now-1days",
            "-o",
            fields,
        )
        text = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=True).stdout
        found = {}
        for line in text.splitlines():
            job, start, end, elapsed, tres = line.split(UNIT)
            if start.isdecimal() and end.isdecimal() and "gres/gpu=" in tres:
                gpus = int(tres.split("gres/gpu=")[1].split(",")[0])
                key = job.partition("+")[0], int(start)
                found[key] = found.get(key, 0) + int(elapsed) * gpus
        return found

    def clear(self):
        """End every job, every drain and every reservation that a test left."""
        self.run("scancel", "--user=root", check=False)
        self.run("scancel", "--full", "--signal=KILL", "--user=root", check=False)
        self.until(lambda: not self.run("squeue", "-h", "-t", "PD,R,CG,S"), 30, "the queue empties")
        for line in self.run("scontrol", "-o", "show", "reservations").splitlines():
            if line.startswith("ReservationName="):
                name = line.split()[0].partition("=")[2]
                self.run("scontrol", "delete", f"ReservationName={name}", check=False)
        self.run("scontrol", "update", "NodeName=ALL", "State=RESUME", check=False)


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
share = 50
slurm = ["vis"]
[accounts.lab.language]
share = 50
slurm = ["lang"]
[accounts.unfunded]
share = 0
"""

SETTINGS = """
conf = "{conf}"
heartbeat = "{heartbeat}"
poll = "500ms"
warn = "2s"
start_patience = "20s"
fail_open_after = "5s"
[default]
min_runtime = "1h"
"""


class Plane:
    """A `divvy up` on a Slurm."""

    def __init__(self, world, home, mode, budget=BUDGET, settings=""):
        self.world, self.home, self.mode = world, home, mode
        home.parent.mkdir(parents=True, exist_ok=True)
        self.budget = home.parent / f"{home.name}.budget.toml"
        self.budget.write_text(budget)
        self.settings = home.parent / f"{home.name}.slurm.toml"
        conf = world.sandbox.root / "etc/slurm.conf"
        self.settings.write_text(settings or SETTINGS.format(conf=conf, heartbeat=world.heartbeat))
        self.client = Client(Target("test", home / "socket"))
        self.process = None

    def start(self, *, wait=True):
        base = [sys.executable, "-m", "divvy", "up", "--home", str(self.home), "--no-browser", "--port", "0"]
        options = ["--engine", "slurm", "--mode", self.mode, "--slurm-config", str(self.settings)]
        with (self.home.parent / f"{self.home.name}.out").open("ab") as log:
            self.process = subprocess.Popen(
                [*base, *options, "--budget", str(self.budget)],
                stdout=log,
                stderr=log,
                env=self.world.sandbox.environment,
                start_new_session=True,
            )
        if wait:
            self.world.until(self.answers, 60, "divvy up answers")
        return self

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError((self.home.parent / f"{self.home.name}.out").read_text() + self.log())
        with contextlib.suppress(DivvyError):
            return self.client.get("status")
        return None

    def log(self):
        with contextlib.suppress(FileNotFoundError):
            return (self.home / "logs/loop.log").read_text()[-6000:]
        return ""

    def job(self, job):
        with contextlib.suppress(DivvyError):
            return self.client.get(f"jobs/{job}")
        return None

    def ledger(self):
        """Return GPU-seconds per job and start, of runs that ended."""
        with contextlib.closing(sqlite3.connect(self.home / "divvy.db", timeout=10)) as connection:
            rows = connection.execute(
                "select job, started, ended, gpus from ledger where cause = 'occupancy'"
            ).fetchall()
        return {(job, start // 1000): (end - start) * gpus / 1000 for job, start, end, gpus in rows}

    def until_ledger_equals_accounting(self, runs):
        """Compare what is charged with what Slurm's accounting says, to the second, run by run."""
        jobs = set()

        def equal():
            ours = self.ledger()
            jobs.update(job for job, _ in ours)
            theirs = {key: use for key, use in self.world.used().items() if key[0] in jobs and use}
            ours = {key: use for key, use in ours.items() if use}
            self.difference = ours, theirs
            return len(ours) == runs and ours == theirs

        try:
            self.world.until(equal, 30)
        except AssertionError:
            ours, theirs = self.difference
            raise AssertionError(f"{runs} runs; ledger {ours}\naccounting {theirs}") from None

    def replay(self):
        """Decide every recorded pass again; return what differs."""
        command = [sys.executable, "-m", "divvy", "replay", "--home", str(self.home), "--last", "100000"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return done.stdout[-2000:] + done.stderr[-2000:] if done.returncode else ""

    def over_serve(self, account, minutes=10):
        """Charge an account as if it had held every H100 for so long."""
        database = open_database(f"sqlite:///{self.home / 'divvy.db'}")
        with contextlib.closing(SimpleNamespace(close=database.dispose)):
            writer = IntakeWriter(database, lambda: wake(self.home / "wake"))
            seq = writer.adjust(account, minutes * MINUTE * 16 * 989, "had it all", "test")
            assert writer.outcome(seq, 10).fault is None

    def until_job(self, job, *states, seconds=30):
        return self.world.until(
            lambda: (found := self.job(job)) is not None and found["state"] in states and found,
            seconds,
            f"{job} is {self.job(job)} instead of {states}\n{self.log()}",
        )

    def kill(self):
        """Kill everything at once, as a power cut would."""
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self.process.pid)
            for process in (*parent.children(recursive=True), parent):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait(10)

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
            if self.process.poll() is None:
                self.kill()
