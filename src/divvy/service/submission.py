"""From a request to a stored job: read, check everything, decide the debug rule, store once.

All faults are reported at once, whether they are of the contract (admission), of the launch (command,
directory, environment) or of a duration that cannot be read.
"""

from __future__ import annotations

import os
import pwd
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from divvy.control.launch import LaunchSpec
from divvy.errors import Fault, InputError
from divvy.fleet.budget import Budget
from divvy.fleet.job import JobKind, JobSpec
from divvy.fleet.node import Node
from divvy.planners.jobs.admission import DebugAllowance, check
from divvy.service.identity import Identity, denied
from divvy.service.ports import Intake, Reader
from divvy.service.requests import MAX_ARGV_BYTES, MAX_ENV_BYTES, JobRequest
from divvy.units import DAY, DURATION_HELP, SECOND, parse_duration

_PLACEHOLDER: Final = "j0"
#: Between the warning and TERM where nobody says: people need longer than programs.
_WARN: Final = {"batch": "5s", "interactive": "60s"}
_LONGEST: Final = 3_650 * DAY
_PAGE: Final = 1_000


class RunAs(NamedTuple):
    """As whom a job runs."""

    user: str
    uid: int
    gid: int
    home: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A submission that may be stored."""

    spec: JobSpec
    launch: LaunchSpec


def run_as(identity: Identity, daemon_uid: int) -> RunAs:
    """Return as whom an identity's jobs run: as the submitter where the daemon is root, else as the daemon.

    Raises:
        DeniedError: If the daemon is root and this machine does not know the user of a token.
    """
    if daemon_uid != 0:
        entry = _entry(daemon_uid)
        home = entry.pw_dir if entry is not None else "/"
        return RunAs(identity.user, daemon_uid, os.getgid(), home)
    if identity.uid is not None:
        entry = _entry(identity.uid)
        gid = identity.gid if identity.gid is not None else identity.uid
        return RunAs(identity.user, identity.uid, gid, entry.pw_dir if entry is not None else "/")
    try:
        known = pwd.getpwnam(identity.user)
    except KeyError:
        raise denied(
            "user-unknown",
            f"this machine knows no user {identity.user!r}, so there is nobody to run the job as",
            fix="use a token for a user of this machine",
        ) from None
    return RunAs(identity.user, known.pw_uid, known.pw_gid, known.pw_dir)


def _entry(uid: int) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None


def prepare(
    request: JobRequest, identity: Identity, who: RunAs, budget: Budget, nodes: Sequence[Node]
) -> Prepared:
    """Return what is to be stored.

    Raises:
        InputError: With every fault of the submission.
    """
    faults: list[Fault] = []
    spec = JobSpec(
        id=request.id or _PLACEHOLDER,
        account=request.account,
        author=identity.user,
        gpus=request.gpus,
        min_runtime=_duration("min_runtime", request.min_runtime, faults),
        resumable=request.resumable or bool(request.resume_argv),
        restart=request.restart,
        priority=request.priority,
        kind=JobKind.INTERACTIVE if request.kind == "interactive" else JobKind.BATCH,
        model=request.model,
        per_node=request.per_node,
        time_limit=_duration("time_limit", request.time_limit, faults),
        name=request.name,
        budgets=(request.account, *request.or_accounts) if request.or_accounts else (),
        clusters=tuple(dict.fromkeys(request.clusters)),
    )
    launch = LaunchSpec(
        argv=tuple(request.argv),
        cwd=request.cwd or who.home,
        env=tuple(request.env.items()),
        user=who.user,
        uid=who.uid,
        gid=who.gid,
        warn_signal=request.warn_signal,
        warn_seconds=_duration("warn", request.warn or _WARN[request.kind], faults) / SECOND,
        grace_seconds=_duration("grace", request.grace, faults) / SECOND,
        memory_bytes=request.memory_bytes,
        resume_argv=tuple(request.resume_argv),
    )
    faults += check(spec, budget, nodes)
    faults += launch.faults()
    faults += _sizes(request)
    if faults:
        raise InputError("the job cannot be admitted", faults)
    return Prepared(spec._replace(id=request.id or ""), launch)


def _duration(field: str, text: str, faults: list[Fault]) -> int:
    try:
        duration = parse_duration(text)
    except ValueError:
        faults.append(
            Fault(
                "duration", field, f"{text!r} is not a duration", DURATION_HELP, "write a number and a unit"
            )
        )
        return 0
    if duration > _LONGEST:
        faults.append(Fault("duration-long", field, f"{text!r}", "at most 3650d", "choose less"))
        return 0
    return duration


def _sizes(request: JobRequest) -> list[Fault]:
    faults = []
    argv = sum(len(_utf8(word)) + 1 for word in (*request.argv, *request.resume_argv))
    if argv > MAX_ARGV_BYTES:
        faults.append(
            Fault("argv-size", "argv", f"{argv} bytes", f"at most {MAX_ARGV_BYTES}", "put it into a script")
        )
    env = sum(len(_utf8(key)) + len(_utf8(value)) + 2 for key, value in request.env.items())
    if env > MAX_ENV_BYTES:
        faults.append(
            Fault("env-size", "env", f"{env} bytes", f"at most {MAX_ENV_BYTES}", "pass fewer variables")
        )
    texts = [*request.argv, *request.resume_argv, request.cwd, *request.env, *request.env.values()]
    if any(_has_surrogate(text) for text in texts):
        faults.append(Fault("text-surrogate", "argv, cwd, env", "not valid Unicode text", "UTF-8 text"))
    return faults


def _utf8(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


class Submissions:
    """Stores submissions one at a time, so that the debug allowance is granted in the order of storing.

    Args:
        reader: Knows what was granted before this process began.
        intake: Where jobs are stored.
    """

    def __init__(self, reader: Reader, intake: Intake) -> None:
        self._reader = reader
        self._intake = intake
        self._allowance = DebugAllowance()
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def store(self, prepared: Prepared, budget: Budget, now: int, actor: str) -> tuple[str, bool]:
        """Store a job; return its id and whether it is new.

        Raises:
            ConflictError: If another job has the id.
            UnavailableError: If it cannot be stored now; nothing was stored.
        """
        spec = prepared.spec
        with self._lock:
            if spec.author not in self._known:
                self._recall(spec.author, now)
            debug = self._allowance.allows(now, spec, budget.policy)
            stored = self._intake.submit(spec, prepared.launch.to_document(), debug=debug, actor=actor)
            if stored.created and debug:
                self._allowance.remember(now, spec.author, spec.gpus * spec.min_runtime)
        return stored.job, stored.created

    def _recall(self, author: str, now: int) -> None:
        """Count what was granted in the last day, before this process began."""
        granted: list[tuple[int, int]] = []
        before: int | None = None
        recent = True
        while recent:
            page = self._reader.jobs(author=author, before=before, limit=_PAGE)
            granted += [(job.submitted, job.spec.gpus * job.spec.min_runtime) for job in page if job.debug]
            recent = len(page) == _PAGE and page[-1].submitted > now - DAY
            before = page[-1].number if page else None
        for at, gpu_time in sorted(granted):
            if at > now - DAY:
                self._allowance.remember(at, author, gpu_time)
        self._known.add(author)
