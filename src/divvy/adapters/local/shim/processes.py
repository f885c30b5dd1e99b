"""Who belongs to a run, and how all of them are reached.

A run is the shim's main child and whatever descends from it. The shim is a *child subreaper*: a process
whose parent dies becomes the shim's child, so a double fork does not lead out. Where the machine has
cgroups for the run, these name its members too.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_PR_SET_CHILD_SUBREAPER: Final = 36


class Stat(NamedTuple):
    """The part of ``/proc/PID/stat`` that matters here; `ticks` is the start time since boot."""

    pid: int
    state: str
    parent: int
    ticks: int


def read_stat(pid: int | str, proc: str = "/proc") -> Stat | None:
    """Return who a process is, or None where it is gone."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:  # noqa: PTH123
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the program stands in brackets and may itself hold brackets, spaces and digits.
    fields = text[text.rindex(b")") + 2 :].split()
    return Stat(int(pid), fields[0].decode(), int(fields[1]), int(fields[19]))


def descendants(root: int, proc: str = "/proc") -> list[int]:
    """Return the processes below one, zombies left out, parents before their children."""
    children: dict[int, list[Stat]] = {}
    for name in os.listdir(proc):  # noqa: PTH208
        if name.isdigit() and (stat := read_stat(name, proc)) is not None:
            children.setdefault(stat.parent, []).append(stat)
    found: list[int] = []
    open_ends = [root]
    while open_ends:
        for stat in children.get(open_ends.pop(), ()):
            open_ends.append(stat.pid)
            if stat.state not in "ZX":
                found.append(stat.pid)
    return found


def members(groups: Iterable[str]) -> set[int]:
    """Return the processes in cgroups and in those below them; one that is gone has none."""
    found: set[int] = set()
    for group in _deepest_first(groups):
        try:
            with open(f"{group}/cgroup.procs", "rb") as file:  # noqa: PTH123
                found.update(int(line) for line in file.read().split())
        except OSError:
            continue  # removed, or being removed (ENODEV): nobody is in it
    return found


def _deepest_first(groups: Iterable[str]) -> list[str]:
    """Return cgroups and what a run made below them, children before their parents."""
    found: list[str] = []
    for group in groups:
        # A directory that is gone, or cannot be listed for want of descriptors, still is one to try.
        found += [path for path, _, _ in os.walk(group, topdown=False)] or [group]
    return found


def signal_all(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes, those that are gone left out.

    SIGCONT follows it, because a stopped process could not act on it.
    """
    for pid in pids:
        for each in (number, signal.SIGCONT) if number != signal.SIGKILL else (number,):
            try:
                os.kill(pid, each)
            except (ProcessLookupError, PermissionError):
                break  # gone, or it runs as somebody else now (sudo): its own end or its cgroup takes it


def kill_groups(groups: Sequence[str]) -> None:
    """Kill everything in cgroup directories: in one step where the kernel can (v2), else one by one."""
    for group in groups:
        try:
            descriptor = os.open(f"{group}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            continue  # v1, or a kernel before 5.14: its members are signalled below
        try:
            os.write(descriptor, b"1")
        except OSError:
            continue  # removed in between
        finally:
            os.close(descriptor)
    signal_all(members(groups), signal.SIGKILL)


def remove_groups(groups: Iterable[str]) -> bool:
    """Remove the cgroups of a run that has ended; return whether none is left."""
    gone = True
    for group in _deepest_first(groups):
        try:
            os.rmdir(group)  # noqa: PTH106
        except FileNotFoundError:
            continue
        except OSError:
            gone = False  # still busy: the caller tries again
    return gone


def catches(pid: int, number: int, proc: str = "/proc") -> bool:
    """Return whether a process would hear a signal: it has a handler, or waits for it while it is blocked."""
    try:
        with open(f"{proc}/{pid}/status", "rb") as file:  # noqa: PTH123
            lines = file.read().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith((b"SigCgt:", b"SigBlk:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def become_reaper(name: str) -> None:
    """Adopt orphaned descendants, and carry a name that people recognise in process lists."""
    _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
    _prctl(_PR_SET_NAME, ctypes.create_string_buffer(name.encode()[:15]))


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent dies; at once if it is dead already."""
    _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(signal.SIGKILL)


def _prctl(option: int, value: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    nothing = ctypes.c_ulong(0)
    if libc.prctl(option, value, nothing, nothing, nothing) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")
