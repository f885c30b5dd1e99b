"""Containment by cgroups: found out by trying, for v1, v2 and machines that have both.

Which hierarchy holds which controller, and whether this process may use it, differs from machine to
machine (systemd with or without delegation, containers, mixed mounts). So nothing is concluded from
versions: every capability is tried once, and where it is missing the reason is kept for people to read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from divvy.adapters.local.device_filter import deny_devices
from divvy.adapters.local.shim.processes import kill_groups, remove_groups

_NVIDIA_MAJOR: Final = 195
_V1_CONTROLLERS: Final = frozenset({"memory", "cpu", "devices", "pids", "freezer"})
_CPU_PERIOD_US: Final = 100_000
_LEAST_QUOTA_US: Final = 1_000
_ESCAPES: Final = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


class Mount(NamedTuple):
    """A mounted hierarchy.

    Attributes:
        version: 1 or 2.
        root: What part of the hierarchy is mounted (``/`` unless a container sees only its own).
        point: Where.
        controllers: Names of the controllers (v1: from the mount options; v2: from the kernel's file).
    """

    version: int
    root: str
    point: Path
    controllers: frozenset[str]


def parse_mounts(text: str) -> list[Mount]:
    """Return the cgroup mounts in a ``/proc/PID/mountinfo``; controllers of v2 are left empty."""
    found: list[Mount] = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        root, point = (_unescape(field) for field in fields[3:5])
        names = frozenset(kind[2].split(",")) & _V1_CONTROLLERS if kind[0] == "cgroup" else frozenset()
        found.append(Mount(1 if kind[0] == "cgroup" else 2, root, Path(point), names))
    return found


def parse_membership(text: str) -> dict[str, str]:
    """Return the path of a process per controller from its ``/proc/PID/cgroup``; v2 under the empty name."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for name in controllers.split(","):
            paths[name] = path
    return paths


def _unescape(text: str) -> str:
    for escape, char in _ESCAPES.items():
        text = text.replace(escape, char)
    return text


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use.

    Attributes:
        slots: Devices of the run on this machine; CPU time is shared in this proportion.
        memory_bytes: Limit of all processes together; 0 means none.
        cpu_cores: Hard limit of CPU time, cores; 0 means none.
        denied_minors: Minor numbers of the GPUs that are not the run's.
    """

    slots: int
    memory_bytes: int = 0
    cpu_cores: float = 0
    denied_minors: tuple[int, ...] = ()


class Group(NamedTuple):
    """The cgroups of one run.

    Attributes:
        paths: Its directories, one per hierarchy.
        oom: File that counts kills for want of memory; empty where there is none.
        lacking: What was asked for and cannot be had here, with the reason.
    """

    paths: tuple[str, ...] = ()
    oom: str = ""
    lacking: tuple[str, ...] = ()


@dataclass(slots=True)
class Containment:
    """What the machine permits, and where.

    Attributes:
        base: Directory under which runs get their cgroups, per capability: ``track`` (name and kill
            all processes of a run), ``memory``, ``cpu``, ``devices``.
        reasons: Why a capability is missing.
        version: Cgroup version per capability that is there.
    """

    base: dict[str, Path] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    version: dict[str, int] = field(default_factory=dict)

    def create(self, name: str, limits: Limits) -> Group:
        """Make the cgroups of a run; leftovers of the same name are killed and replaced.

        Raises:
            OSError: If a capability that was found at the start fails now.
        """
        paths = self.paths(name)
        kill_groups(paths)
        try:
            for path in paths:
                Path(path).mkdir(exist_ok=True)
            for file, value in self._settings(name, limits):
                file.write_text(value, encoding="ascii")
            if limits.denied_minors and self.version.get("devices") == 2:
                deny_devices(self.base["devices"] / name, _NVIDIA_MAJOR, limits.denied_minors)
        except OSError:
            remove_groups(paths)
            raise
        return Group(paths, self._oom_file(name) if limits.memory_bytes else "", self._lacking(limits))

    def paths(self, name: str) -> tuple[str, ...]:
        """Return the directories that belong to a run, one per hierarchy, whether they exist or not."""
        return tuple(dict.fromkeys(str(base / name) for base in self.base.values()))

    def discard(self, name: str) -> bool:
        """Kill what is in the cgroups of a run that did not begin; return whether they are gone."""
        paths = self.paths(name)
        kill_groups(paths)
        return remove_groups(paths)

    def describe(self) -> list[str]:
        """Return one line per capability for people: what holds it, or why it is missing."""
        return [
            f"{what}: cgroup v{self.version[what]} in {self.base[what]}"
            if what in self.base
            else f"{what}: not contained: {self.reasons.get(what, 'not tried')}"
            for what in ("track", "memory", "cpu", "devices")
        ]

    def close(self) -> None:
        """Remove the directories of this engine that hold no run; a run may be about to enter its own."""
        for base in set(self.base.values()):
            with contextlib.suppress(OSError):
                base.rmdir()

    def _settings(self, name: str, limits: Limits) -> Iterator[tuple[Path, str]]:
        """Yield (file, value) pairs, for each controller in its version's own words."""
        if limits.memory_bytes and (memory := self.base.get("memory")):
            v1 = self.version["memory"] == 1
            yield memory / name / ("memory.limit_in_bytes" if v1 else "memory.max"), str(limits.memory_bytes)
            swap = memory / name / ("memory.memsw.limit_in_bytes" if v1 else "memory.swap.max")
            if swap.exists():  # else a run would swap where it should be stopped
                yield swap, str(limits.memory_bytes) if v1 else "0"
        if cpu := self.base.get("cpu"):
            v1 = self.version["cpu"] == 1
            if v1:
                yield cpu / name / "cpu.shares", str(min(1024 * limits.slots, 262_144))
            else:
                yield cpu / name / "cpu.weight", str(min(100 * limits.slots, 10_000))
            if limits.cpu_cores:
                quota = max(int(limits.cpu_cores * _CPU_PERIOD_US), _LEAST_QUOTA_US)
                if v1:
                    yield cpu / name / "cpu.cfs_period_us", str(_CPU_PERIOD_US)
                    yield cpu / name / "cpu.cfs_quota_us", str(quota)
                else:
                    yield cpu / name / "cpu.max", f"{quota} {_CPU_PERIOD_US}"
        if self.version.get("devices") == 1:
            for minor in limits.denied_minors:
                yield self.base["devices"] / name / "devices.deny", f"c {_NVIDIA_MAJOR}:{minor} rwm"

    def _oom_file(self, name: str) -> str:
        base = self.base.get("memory")
        if base is None:
            return ""
        return str(base / name / ("memory.oom_control" if self.version["memory"] == 1 else "memory.events"))

    def _lacking(self, limits: Limits) -> tuple[str, ...]:
        asked = {
            "memory": bool(limits.memory_bytes),
            "cpu": bool(limits.cpu_cores),
            "devices": bool(limits.denied_minors),
        }
        return tuple(
            f"{what} is not limited: {self.reasons.get(what, 'not tried')}"
            for what, wanted in asked.items()
            if wanted and what not in self.base
        )


def detect(
    name: str, *, devices: bool, proc: Path = Path("/proc"), mounts: Sequence[Mount] = ()
) -> Containment:
    """Find out by trying what this process may contain.

    Args:
        name: Name of the engine's own directory in each hierarchy; one engine, one name.
        devices: Whether there are GPUs to be kept apart.
        proc: Where process information is read (tests give their own).
        mounts: Hierarchies to use instead of those that are mounted.
    """
    found = Containment()
    try:
        mounts = mounts or parse_mounts((proc / "self/mountinfo").read_text(encoding="utf-8"))
        membership = parse_membership((proc / "self/cgroup").read_text(encoding="utf-8"))
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
        found.reasons = dict.fromkeys(("track", "memory", "cpu", "devices"), reason)
        return found
    wanted = {"memory": True, "cpu": True, "devices": devices}
    found.reasons = {
        what: f"no mounted cgroup hierarchy has the {what} controller" if used else "no GPUs here"
        for what, used in wanted.items()
    }
    found.reasons["track"] = "no cgroup hierarchy is mounted"
    tried: list[Path] = []
    for mount in mounts:
        if mount.version == 1:
            tried += _try_v1(found, mount, membership, name, wanted)
    for mount in mounts:
        if mount.version == 2:
            tried += _try_v2(found, mount, membership, name, wanted)
    for base in set(tried) - set(found.base.values()):
        with contextlib.suppress(OSError):  # it was never made, or an older engine's runs are in it
            base.rmdir()
    return found


def _home(mount: Mount, path: str) -> Path:
    """Return the directory in which a membership path is seen through a mount."""
    inside = os.path.relpath(path, mount.root) if path.startswith(mount.root) else "."
    home = mount.point / inside
    return home if home.is_dir() else mount.point


_PROBES: Final = {
    1: {"memory": "memory.limit_in_bytes", "cpu": "cpu.shares", "devices": "devices.deny"},
    2: {"memory": "memory.max", "cpu": "cpu.weight"},
}


def _try_v1(
    found: Containment, mount: Mount, membership: dict[str, str], name: str, wanted: dict[str, bool]
) -> list[Path]:
    """Note what a v1 hierarchy is good for; return the directory that was made in it for that."""
    useful = [what for what, used in wanted.items() if used and what in mount.controllers]
    if not useful and ("track" in found.base or not mount.controllers & {"pids", "freezer"}):
        return []
    path = next((membership[c] for c in mount.controllers if c in membership), "/")
    base = _home(mount, path) / name
    refused = _probe(base)
    for what in useful:
        missing = refused or _lacks(base, _PROBES[1][what])
        if missing:
            found.reasons[what] = missing
        else:
            found.base[what], found.version[what] = base, 1
    if refused:
        found.reasons["track"] = refused
    elif "track" not in found.base:
        found.base["track"], found.version["track"] = base, 1
    return [base]


def _try_v2(
    found: Containment, mount: Mount, membership: dict[str, str], name: str, wanted: dict[str, bool]
) -> list[Path]:
    """Note what a v2 hierarchy is good for; return the directory that was made in it for that."""
    home = _home(mount, membership.get("", "/"))
    parent = home if _delegated(home) or os.geteuid() != 0 else mount.point
    base = parent / name
    refused = _probe(base)
    if refused:
        found.reasons["track"] = refused
        found.reasons.update((what, refused) for what in wanted if wanted[what] and what not in found.base)
        return [base]
    # Processes can be named and killed in one step here, whatever the controllers: better than v1.
    found.base["track"], found.version["track"] = base, 2
    for what in ("memory", "cpu"):
        if what in found.base:
            continue
        reason = _enable(parent, what) or _enable(base, what) or _lacks(base, _PROBES[2][what])
        if reason:
            found.reasons[what] = reason
        else:
            found.base[what], found.version[what] = base, 2
    if wanted["devices"] and "devices" not in found.base:
        reason = _refuses_filter(base / "probe")
        if reason:
            found.reasons["devices"] = reason
        else:
            found.base["devices"], found.version["devices"] = base, 2
    return [base]


def _probe(base: Path) -> str:
    """Make a cgroup below a directory and remove it again; return why that is not possible."""
    try:
        base.mkdir(exist_ok=True)
        trial = base / "probe"
        trial.mkdir(exist_ok=True)
        trial.rmdir()
    except OSError as error:
        return f"cannot make cgroups in {base.parent}: {error.strerror}"
    return ""


def _lacks(base: Path, file: str) -> str:
    """Return why a setting is not there for the runs below a directory; empty where it is."""
    trial = base / "probe"
    try:
        trial.mkdir(exist_ok=True)
        there = (trial / file).exists()
        trial.rmdir()
    except OSError as error:
        return f"cannot make cgroups in {base}: {error.strerror}"
    return "" if there else f"{base} has no {file}"


def _refuses_filter(trial: Path) -> str:
    """Return why a device program cannot be attached; empty where it can."""
    try:
        trial.mkdir(exist_ok=True)
        try:
            deny_devices(trial, _NVIDIA_MAJOR, ())
        finally:
            trial.rmdir()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _enable(directory: Path, controller: str) -> str:
    """Hand a v2 controller on to the children of a cgroup; return why that is not possible."""
    file = directory / "cgroup.subtree_control"
    try:
        if controller in file.read_text(encoding="ascii").split():
            return ""
        available = (directory / "cgroup.controllers").read_text(encoding="ascii").split()
        if controller not in available:
            return f"the {controller} controller is not available in {directory}"
        file.write_text(f"+{controller}", encoding="ascii")
    except OSError as error:
        if error.errno == 16:  # EBUSY: the rule of v2 that inner cgroups hold no processes
            return (
                f"{directory} holds processes itself, so the {controller} controller cannot be handed on; "
                "start divvy in a delegated cgroup (systemd: Delegate=yes with DelegateSubgroup=main)"
            )
        return f"{file}: {error.strerror}"
    return ""


def _delegated(directory: Path) -> bool:
    """Return whether systemd handed a cgroup over to the service in it."""
    for name in ("trusted.delegate", "user.delegate"):
        try:
            if os.getxattr(directory, name) == b"1":
                return True
        except OSError:
            continue  # no such mark, or no right to read it: the other one decides
    return False
