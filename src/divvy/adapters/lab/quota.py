"""Shares of a processor by cgroup: version 1 (`cpu.cfs_quota_us`) or 2 (`cpu.max`), whichever is there."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

from divvy.errors import UnavailableError

_ROOT: Final = Path("/sys/fs/cgroup")
_PERIOD_US: Final = 10_000
_TRIES: Final = 50


class Quotas:
    """Groups of processes with a share of a processor each; removed by `close`.

    Args:
        root: Where control groups are mounted.

    Raises:
        UnavailableError: If there is no controller of processors, or it may not be written.
    """

    def __init__(self, root: Path = _ROOT) -> None:
        old = root / "cpu"
        self._version = 1 if (old / "cpu.cfs_quota_us").exists() or (old / "tasks").exists() else 2
        base = old if self._version == 1 else root
        self._home = base / f"divvy-lab-{os.getpid()}"
        self._groups: list[Path] = []
        try:
            self._home.mkdir(exist_ok=True)
            if self._version == 2:
                (self._home / "cgroup.subtree_control").write_text("+cpu", encoding="ascii")
        except OSError as error:
            with contextlib.suppress(OSError):
                self._home.rmdir()
            raise UnavailableError.one(
                "lab-cgroup",
                f"no control group can be made in {base}: {error.strerror}",
                path="--work",
                allowed="sleep",
                fix="run as root where /sys/fs/cgroup can be written, or use --work sleep (emulated)",
            ) from error

    def hold(self, pid: int, name: str, share: float) -> None:
        """Let a process have at most this share of one processor (1.0: one whole).

        Raises:
            UnavailableError: If the kernel refuses.
        """
        group = self._home / name
        quota = max(1_000, round(_PERIOD_US * share))
        try:
            group.mkdir(exist_ok=True)
            self._groups.append(group)
            if self._version == 1:
                (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US), encoding="ascii")
                (group / "cpu.cfs_quota_us").write_text(str(quota), encoding="ascii")
            else:
                (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}", encoding="ascii")
            (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
        except OSError as error:
            raise UnavailableError.one(
                "lab-cgroup",
                f"{group}: {error.strerror}",
                path="--work",
                allowed="sleep",
                fix="use --work sleep (emulated)",
            ) from error

    def close(self) -> None:
        """Remove the groups; their processes must have ended."""
        for group in (*self._groups, self._home):
            for _ in range(_TRIES):
                try:
                    group.rmdir()
                except FileNotFoundError:
                    break
                except OSError:  # a process that has just ended still counts for a moment
                    time.sleep(0.02)
                    continue
                break
        self._groups.clear()
