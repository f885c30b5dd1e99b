"""A whole Slurm of its own on this machine: for tests, for benchmarks and for trying things out.

Munge, MariaDB, slurmdbd, slurmctld and one slurmd per node run under one directory, on loopback, with
devices that do not exist (device files of the right numbers and nothing behind them). It needs root and the
packages of Debian 12 (Slurm 22.05.8); nothing of it touches a Slurm that is installed for real.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from divvy.adapters.slurm.sandbox_files import Layout, Ports, write_files
from divvy.errors import UnavailableError

PACKAGES: Final = ("slurm-wlm", "slurmdbd", "slurmrestd", "munge", "mariadb-server", "mariadb-client")
_COMMANDS: Final = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "sbatch")
_START_SECONDS: Final = 60.0
_PLUGINS: Final = "/usr/lib/x86_64-linux-gnu/slurm-wlm"


def missing() -> str:
    """Return why no sandbox can be started here; empty where one can."""
    if os.geteuid() != 0:
        return "a Slurm of our own needs root (device files, users)"
    lacking = [name for name in _COMMANDS if shutil.which(name, path=_path()) is None]
    if lacking:
        return f"{', '.join(lacking)} not installed (Debian: apt-get install {' '.join(PACKAGES)})"
    return ""


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class Sandbox:
    """One Slurm under one directory; use it as a context.

    Args:
        layout: What it offers.
        directory: Where it lives; a new one by default, removed at the end.
    """

    def __init__(self, layout: Layout, directory: Path | None = None) -> None:
        self.layout = layout
        self._given = directory
        self.root = directory or Path(tempfile.mkdtemp(prefix="divvy-slurm-"))
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o755)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = _free_ports(len(layout.names()))

    def __enter__(self) -> Self:
        """Start everything and wait until every node is idle."""
        reason = missing()
        if reason:
            raise UnavailableError.one("slurm-missing", reason)
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything and remove the directory."""
        self.close()

    # -- use ------------------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment in which Slurm's commands reach this Slurm."""
        return {**os.environ, "SLURM_CONF": str(self.root / "etc/slurm.conf"), "PATH": _path()}

    def run(self, *command: str, timeout_seconds: float = 30, check: bool = True) -> str:
        """Run one of Slurm's commands; return what it printed.

        Raises:
            UnavailableError: If it fails and ``check`` is set.
        """
        done = subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
            cwd=self.root,
        )
        if check and done.returncode:
            raise UnavailableError.one("slurm-command", f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def stop_controller(self) -> None:
        """End slurmctld; jobs that run go on."""
        self._end(self._processes.pop("slurmctld"), signal.SIGTERM)

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self._spawn("slurmctld", "slurmctld", "-D")
        self._until(lambda: "UP" in self.run("scontrol", "ping", check=False), "slurmctld")

    def start_rest(self) -> Path:
        """Start slurmrestd as nobody; return its Unix socket."""
        directory = self.root / "rest"
        directory.mkdir(exist_ok=True)
        os.chown(directory, 65534, 65534)
        path = directory / "socket"
        drop = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        plugins = "openapi/v0.0.38,openapi/dbv0.0.38"
        self._spawn("slurmrestd", *drop, "slurmrestd", "-a", "rest_auth/local", "-s", plugins, f"unix:{path}")
        self._until(path.exists, "slurmrestd")
        return path

    def close(self) -> None:
        """End every job and every process, and remove the directory."""
        with contextlib.suppress(UnavailableError, subprocess.TimeoutExpired, OSError):
            self.run("scancel", "--full", "--user=root", timeout_seconds=10, check=False)
            self._await_no_steps()
        order = ["slurmrestd", "slurmctld", *self.layout.names(), "slurmdbd", "mariadbd", "munged"]
        for name in order:
            process = self._processes.pop(name, None)
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGKILL if name.startswith("node") else signal.SIGTERM)
                self._processes[f"ending {name}"] = process
        for process in self._processes.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=10)
        self._processes.clear()
        self._sweep()
        if self._given is None:
            shutil.rmtree(self.root, ignore_errors=True)

    # -- inside ---------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Kill what is left of jobs: the process that supervises one outlives every daemon."""
        mark = f"SLURM_CONF={self.root}/etc/slurm.conf".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        os.kill(int(entry.name), signal.SIGKILL)

    def _await_no_steps(self) -> None:
        """Wait until no job is left: the process that supervises a job outlives its slurmd."""
        limit = time.monotonic() + 10
        while time.monotonic() < limit and self.run("squeue", "-h", "-t", "R,CG", check=False):
            time.sleep(0.1)

    def _start(self) -> None:
        for name in ("etc", "log", "spool", "state", "db", "munge", "dev", "pid", "scratch"):
            (self.root / name).mkdir(exist_ok=True)
        (self.root / "munge").chmod(0o755)
        write_files(self.root, self.layout, self._ports)
        self._start_munge()
        self._start_database()
        self._spawn("slurmdbd", "slurmdbd", "-D")
        self._until(lambda: bool(self._try("sacctmgr", "-n", "list", "cluster") is not None), "slurmdbd")
        self.run("sacctmgr", "-i", "add", "cluster", "sandbox", check=False)
        self.start_controller()
        for name in self.layout.names():
            (self.root / "spool" / name).mkdir(exist_ok=True)
            self._spawn(name, "slurmd", "-D", "-N", name)
        wanted = len(self.layout.names())

        def idle() -> bool:
            found = self._try("sinfo", "-h", "-N", "-p", "all", "-t", "idle", "-o", "%N")
            return found is not None and len(set(found.split())) == wanted

        self._until(idle, "the nodes")

    def _try(self, *command: str) -> str | None:
        with contextlib.suppress(UnavailableError, subprocess.TimeoutExpired):
            return self.run(*command, timeout_seconds=5)
        return None

    def _start_munge(self) -> None:
        munge = self.root / "munge"
        (munge / "key").write_bytes(secrets.token_bytes(128))
        (munge / "key").chmod(0o600)
        files = (f"--key-file={munge}/key", f"--socket={munge}/sock", f"--seed-file={munge}/seed")
        more = (f"--pid-file={self.root}/pid/munged", f"--log-file={self.root}/log/munged.log")
        self._spawn("munged", "munged", "-f", "--foreground", *files, *more)
        self._until((munge / "sock").exists, "munged")

    def _start_database(self) -> None:
        data, sock = self.root / "db", self.root / "db/sock"
        # A server removes what it takes for leftovers of its own from a temporary directory that is shared.
        options = ["--no-defaults", f"--datadir={data}", f"--tmpdir={self.root}/scratch", "--user=root"]
        self.run(
            "mariadb-install-db",
            *options,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            timeout_seconds=60,
        )
        self._spawn(
            "mariadbd",
            "mariadbd",
            *options,
            f"--socket={sock}",
            f"--port={self._ports.database}",
            "--bind-address=127.0.0.1",
            f"--pid-file={self.root}/pid/mariadbd",
            "--innodb-buffer-pool-size=128M",
            "--innodb-lock-wait-timeout=900",
            "--innodb-flush-log-at-trx-commit=0",
        )
        client = ("mariadb", "--no-defaults", "-S", str(sock), "-uroot", "-e")
        self._until(lambda: self._try(*client, "select 1") is not None, "MariaDB")
        users = "".join(
            f"create user if not exists slurm@'{host}' identified by 'x'; "
            f"grant all on slurm_acct.* to slurm@'{host}';"
            for host in ("127.0.0.1", "localhost")
        )
        self.run(*client, f"create database if not exists slurm_acct; {users}")

    def _spawn(self, name: str, *command: str) -> None:
        with (self.root / f"log/{name}.out").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.root,
                start_new_session=True,
            )

    def _until(self, ask: Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + _START_SECONDS
        while not ask():
            if time.monotonic() > limit:
                raise UnavailableError.one("slurm-start", f"{what} did not come up; see {self.root}/log")
            time.sleep(0.05)

    @staticmethod
    def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        process.send_signal(number)
        process.wait(timeout=20)


def _free_ports(nodes: int) -> Ports:
    """Return ports that are free in a row."""
    for _ in range(50):
        start = 20_000 + secrets.randbelow(12_000)  # below the ports that the kernel gives to clients
        if all(_is_free(start + offset) for offset in range(nodes + 4)):
            return Ports(start, start + 1, start + 2, start + 3)
    raise UnavailableError.one("ports", f"no {nodes + 4} free ports in a row")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
