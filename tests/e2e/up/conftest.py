"""A control plane as somebody starts it: `divvy up` in a process of its own, with real jobs."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from divvy.adapters.store.health import read_health
from divvy.cli import main
from divvy.cli.client import Client, Target
from divvy.errors import DivvyError

BUDGET = """
[accounts.lab]
share = 100
[accounts.lab.vision]
share = 60
[accounts.lab.language]
share = 40
"""


class ControlPlane:
    """One state directory, and the `divvy up` on it, if one runs."""

    def __init__(self, home: Path, *options: str, budget: str = BUDGET):
        self.home = home
        file = home.parent / f"{home.name}.toml"
        file.write_text(budget)
        self.options = ["--budget", str(file), "--slots", "4", *options]
        self.process = None
        self.client = Client(Target("test", home / "socket"))

    def command(self, *options):
        base = [sys.executable, "-m", "divvy", "up", "--home", str(self.home), "--no-browser", "--port", "0"]
        return [*base, *self.options, *options]

    def start(self, *options, wait=True):
        self.log = (self.home.parent / f"{self.home.name}.out").open("ab")
        self.process = subprocess.Popen(self.command(*options), stdout=self.log, stderr=self.log)
        self.log.close()
        if wait:
            self.until(self.answers, 60)
        return self

    def output(self):
        return (self.home.parent / f"{self.home.name}.out").read_text()

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"divvy up ended with {self.process.returncode}: {self.output()}")
        try:
            return self.client.get("status")
        except DivvyError:
            return None

    def until(self, ask, seconds=20):
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            found = ask()
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(
            f"not within {seconds} s; divvy up says: {self.output()}\n{self.loop_log()[-3000:]}"
        )

    def loop_log(self):
        with contextlib.suppress(FileNotFoundError):
            return (self.home / "logs/loop.log").read_text() + (self.home / "logs/loop.err").read_text()
        return ""

    def child(self, name):
        """The process of the loop or of the API, None while there is none."""
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self.process.pid).children():
                if f"divvy.service.{name}_process" in process.cmdline():
                    return process
        return None

    def began(self, name):
        """When the run is known to have begun, None before; a state may be that of a promise."""
        history = self.client.get("jobs", name, "explain")["history"]
        return next((line["at"] for line in history if line["event"] == "started"), None)

    def started(self, name):
        """Whether the run is known to have begun."""
        return self.began(name) is not None

    def health(self):
        return read_health(self.home / "health")

    def submit(self, *argv, account="lab.vision", gpus=1, **fields):
        body = {
            "account": account,
            "gpus": gpus,
            "argv": list(argv),
            "cwd": "/",
            "min_runtime": "1m",
            **fields,
        }
        return self.client.post("jobs", body=body)["id"]

    def job(self, name):
        return self.client.get("jobs", name)

    def over(self, name):
        found = self.job(name)
        return found if found["ended_at"] is not None else None

    def stop(self, number=signal.SIGTERM):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(30)

    def clear(self):
        """End everything, the jobs too."""
        self.stop(signal.SIGKILL)
        limit = time.monotonic() + 20
        while time.monotonic() < limit and (left := self._left()):
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(0.1)

    def _left(self):
        """Processes that belong to this state directory: children that go on for a moment, shims and jobs."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                environment = process.environ()
                if any(str(self.home) in word for word in words) or environment.get("DIVVY_TEST_HOME") == str(
                    self.home
                ):
                    found.append(process)
        return [process for process in found if process.pid != os.getpid()]


@contextlib.contextmanager
def planes():
    """Make control planes in directories with short names (a socket's path is bounded); clear them."""
    made = []
    with tempfile.TemporaryDirectory(prefix="dv", ignore_cleanup_errors=True) as directory:

        def make(*options, home=None, **more):
            made.append(ControlPlane(home or Path(directory) / f"h{len(made)}", *options, **more))
            return made[-1]

        try:
            yield make
        finally:
            for plane in made:
                plane.clear()


@pytest.fixture
def make_plane():
    with planes() as make:
        yield make


@pytest.fixture(scope="module")
def plane():
    """A control plane that the tests of a module share: starting one takes seconds."""
    with planes() as make:
        yield make().start()


@pytest.fixture
def refused(monkeypatch, capsys):
    """Run `divvy up` in this process, up to its refusal."""

    def run(plane, *options):
        monkeypatch.setattr(sys, "argv", ["divvy", *plane.command(*options)[3:]])
        with pytest.raises(SystemExit) as end:
            main()
        return SimpleNamespace(code=end.value.code, err=capsys.readouterr().err)

    mask = os.umask(0o022)
    yield run
    os.umask(mask)
