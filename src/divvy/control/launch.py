"""What a live job runs, and where the record of each of its runs lies.

A `JobSpec` is all that a planner may know; what a process needs besides (command, directory, environment,
identity) is a `LaunchSpec`, kept by the store beside the job and looked up by an engine when it starts it.
"""

from __future__ import annotations

import hashlib
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from divvy.errors import Fault
from divvy.fleet.job import JobSpec
from divvy.units import SECOND

#: Longest time between the warn signal and SIGTERM, and between SIGTERM and SIGKILL.
LONGEST_LADDER_SECONDS: Final = 3600.0
_LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What one job executes and as whom. The same for every attempt.

    Attributes:
        argv: Command and arguments, passed on as they are; no shell is involved.
        cwd: Absolute working directory.
        env: Environment as (name, value) pairs; the engine adds its own variables.
        user: Login name of the submitter.
        uid: User id of the submitter; an engine that runs as root changes to it.
        gid: Primary group id of the submitter.
        warn_signal: Signal that announces a preemption to the main process; empty means none.
        warn_seconds: Time between the warn signal and SIGTERM.
        grace_seconds: Time between SIGTERM and SIGKILL.
        memory_bytes: Memory limit of all processes together; 0 means none.
        resume_argv: What runs instead once a run of the job has begun; empty: the same again.
    """

    argv: tuple[str, ...]
    cwd: str
    env: tuple[tuple[str, str], ...]
    user: str
    uid: int
    gid: int
    warn_signal: str = "SIGUSR1"
    warn_seconds: float = 5
    grace_seconds: float = 10
    memory_bytes: int = 0
    resume_argv: tuple[str, ...] = ()

    def command(self, *, resumed: bool) -> tuple[str, ...]:
        """Return what a run executes; ``resumed``: an earlier run of the job has begun."""
        return self.resume_argv if resumed and self.resume_argv else self.argv

    def faults(self) -> list[Fault]:
        """Return everything that would keep this from being started anywhere; empty when it is sound."""
        found: list[Fault] = []
        if not self.argv or not self.argv[0]:
            found.append(Fault("argv-empty", "argv", "no command was given", fix="put it after --"))
        if self.resume_argv and not self.resume_argv[0]:
            found.append(Fault("argv-empty", "resume_argv", "the command to resume with is empty"))
        found += (
            Fault("argv-nul", name, "an argument contains a NUL character")
            for name, words in (("argv", self.argv), ("resume_argv", self.resume_argv))
            if any("\0" in word for word in words)
        )
        if not self.cwd.startswith("/") or "\0" in self.cwd:
            found.append(Fault("cwd-relative", "cwd", f"{self.cwd!r} is not an absolute path"))
        found += (
            Fault("env-name", f"env.{name}", f"{name!r} cannot be an environment variable")
            for name, value in self.env
            if not name or "=" in name or "\0" in name + value
        )
        if self.warn_signal and self.warn_signal not in signal.Signals.__members__:
            allowed = "SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP, or empty for none"
            found.append(Fault("warn-signal", "warn_signal", f"no signal {self.warn_signal!r}", allowed))
        found += (
            Fault(
                "ladder-seconds", name, f"{value} seconds", f"0 to {LONGEST_LADDER_SECONDS:g}", "choose less"
            )
            for name, value in (("warn_seconds", self.warn_seconds), ("grace_seconds", self.grace_seconds))
            if not 0 <= value <= LONGEST_LADDER_SECONDS
        )
        if self.memory_bytes < 0:
            found.append(Fault("memory-negative", "memory_bytes", f"{self.memory_bytes} bytes", "0 or more"))
        return found

    def to_document(self) -> dict[str, Any]:
        """Return the specification as plain JSON values."""
        lists = {"argv": list(self.argv), "resume_argv": list(self.resume_argv)}
        return {**asdict(self), **lists, "env": [list(pair) for pair in self.env]}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> LaunchSpec:
        """Return the specification that `to_document` wrote.

        Raises:
            ValueError: If a field is missing, unknown or of the wrong shape.
        """
        try:
            fields = dict(document)
            fields["argv"] = tuple(str(word) for word in fields["argv"])
            fields["resume_argv"] = tuple(str(word) for word in fields.get("resume_argv", ()))
            fields["env"] = tuple((str(name), str(value)) for name, value in fields["env"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise ValueError(f"damaged launch details: {error}") from error


def run_variables(job: str, attempt: int, spec: JobSpec) -> dict[str, str]:
    """Return the variables by which every run learns what it is, whatever engine runs it."""
    variables = {
        "DIVVY_JOB_ID": job,
        "DIVVY_JOB_NAME": spec.name,
        "DIVVY_ATTEMPT": str(attempt),
        "DIVVY_ACCOUNT": spec.account,
        "DIVVY_AUTHOR": spec.author,
        "DIVVY_GPUS": str(spec.gpus),
        "DIVVY_MIN_RUNTIME_SECONDS": f"{spec.min_runtime / SECOND:g}",
    }
    if spec.time_limit:
        variables["DIVVY_TIME_LIMIT_SECONDS"] = f"{spec.time_limit / SECOND:g}"
    return variables


def run_directory(root: Path, job: str, attempt: int) -> Path:
    """Return where the local engine keeps the record and the logs of one run: ``root/jobs/ID/ATTEMPT``.

    An id is chosen by people, so it is quoted: it can neither leave the directory nor be hidden in it.
    The log files there are called ``stdout`` and ``stderr``.
    """
    return root / "jobs" / directory_name(job) / str(attempt)


def directory_name(job: str) -> str:
    """Return an id as a file name: itself where it is plain, quoted where not, a digest where too long."""
    name = quote(job, safe="@+,=", errors="surrogatepass")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if not name or len(name) > _LONGEST_NAME:
        return "%sha256-" + hashlib.sha256(job.encode(errors="surrogatepass")).hexdigest()
    return name
