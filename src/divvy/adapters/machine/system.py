"""The machine itself: Python, control groups, limits, ports, disk, clock, directories."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from divvy.adapters.machine.check import Check, State

_PYTHON: Final = (3, 11)
_FREE_BYTES: Final = 1 << 30
_FILES: Final = 1_024
_SKEW_SECONDS: Final = 2.0
_SOCKET_PATH: Final = 100
_GIB: Final = 1 << 30
_OLDEST: Final = 1_735_689_600  # 2025: a clock before that was never set


def python() -> Check:
    """Look at the interpreter."""
    found = f"{platform.python_implementation()} {platform.python_version()} at {sys.executable}"
    good = sys.version_info[:2] >= _PYTHON
    return Check(
        "python", State.OK if good else State.FAIL, found, "everything", "" if good else "install Python 3.11"
    )


def cgroups(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Check:
    """Look whether jobs can be put into control groups of their own."""
    need, fix = (
        "containment and memory limits of local jobs",
        "run as root, or in a systemd unit with Delegate=yes",
    )
    if not (root / "cgroup.controllers").exists():
        return Check(
            "cgroups",
            State.WARN,
            "no cgroup v2 here",
            need,
            "boot with cgroup v2; until then jobs are kept by process groups",
        )
    line = next(
        (line for line in own.read_text(encoding="ascii").splitlines() if line.startswith("0::")), "0::/"
    )
    place = root / line[3:].strip().lstrip("/")
    controllers = (root / "cgroup.controllers").read_text(encoding="ascii").strip() or "none"
    if os.access(place, os.W_OK):
        return Check("cgroups", State.OK, f"v2, {place} may be written, controllers: {controllers}", need)
    return Check("cgroups", State.WARN, f"v2, but {place} may not be written", need, fix)


def files() -> Check:
    """Look at the limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    good = soft >= _FILES
    fix = "" if good else f"raise it to {_FILES} or more (ulimit -n)"
    return Check(
        "open-files", State.OK if good else State.WARN, f"{soft} now, at most {hard}", "streams and logs", fix
    )


def port(number: int) -> Check:
    """Look whether a port of the loopback is free."""
    need = "the API and the page"
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError as error:
            why = f"127.0.0.1:{number}: {error.strerror or error}"
            return Check(
                "port",
                State.WARN,
                why,
                need,
                "if that is not `divvy up`, start it with --port 0 or another port",
            )
    return Check("port", State.OK, f"127.0.0.1:{number} is free", need)


def disk(home: Path) -> Check:
    """Look at the room where the state lies."""
    place = next(path for path in (home, *home.parents) if path.exists())
    usage = shutil.disk_usage(place)
    found = f"{usage.free / _GIB:.1f} of {usage.total / _GIB:.1f} GiB free at {place}"
    stat = os.statvfs(place)
    if stat.f_files and stat.f_favail < 10_000:
        return Check(
            "disk",
            State.FAIL,
            f"{found}, {stat.f_favail} inodes left",
            "journal and logs",
            "free inodes there",
        )
    good = usage.free >= _FREE_BYTES
    fix = "" if good else "free a gigabyte there, or name another directory with --home"
    return Check("disk", State.OK if good else State.FAIL, found, "journal and logs", fix)


def clock() -> Check:
    """Look whether the clock was set, and whether the file system agrees with it."""
    need, now = "order of events, expiry of tokens", time.time()
    if now < _OLDEST:
        shown = time.strftime("%Y-%m-%d", time.gmtime(now))
        return Check("clock", State.FAIL, f"it says {shown}", need, "set it (chrony, systemd-timesyncd)")
    with tempfile.NamedTemporaryFile() as probe:
        skew = Path(probe.name).stat().st_mtime - time.time()
    if abs(skew) > _SKEW_SECONDS:
        return Check(
            "clock", State.WARN, f"files are {skew:+.1f} s off", need, "run NTP here and on the file server"
        )
    return Check("clock", State.OK, time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now)), need)


def permissions(home: Path) -> Check:
    """Look whether the state directory can be made and used, and holds a socket path."""
    need = "the state directory"
    length = len(os.fsencode(home / "socket"))
    if length > _SOCKET_PATH:
        return Check(
            "permissions", State.FAIL, f"{home}/socket has {length} bytes", need, "name a shorter --home"
        )
    if not home.exists():
        above = next(path for path in home.parents if path.exists())
        good = os.access(above, os.W_OK | os.X_OK)
        fix = "" if good else "name a directory that you may write with --home or DIVVY_HOME"
        return Check(
            "permissions", State.OK if good else State.FAIL, f"{home} will be made below {above}", need, fix
        )
    if not home.is_dir():
        return Check(
            "permissions", State.FAIL, f"{home} is no directory", need, "name another one with --home"
        )
    mine = os.access(home, os.R_OK | os.W_OK | os.X_OK)
    owner = home.stat().st_uid
    found = f"{home} of user {owner}, mode {home.stat().st_mode & 0o777:o}"
    if mine:
        return Check("permissions", State.OK, found, need)
    return Check(
        "permissions", State.FAIL, found, need, "run as its owner, or name another directory with --home"
    )
