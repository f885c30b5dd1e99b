"""Builds, changes and removes labs of rails on this machine, and remembers them in state files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Self

from divvy.adapters.rails import fabric as plan
from divvy.adapters.rails.fabric import Command, Fabric
from divvy.errors import DeniedError, DivvyError, InputError, NotFoundError, UnavailableError

_TIMEOUT_SECONDS: Final = 20
_TRIES: Final = 3


def state_folder() -> Path:
    """Return where the state files of labs lie: namespaces are the machine's, and so are these."""
    return Path(os.environ.get("DIVVY_LAB_STATE", "/run/divvy/labs"))


def missing() -> str:
    """Return why no lab can be built here; empty where one can."""
    if os.geteuid() != 0:
        return "network namespaces and rate limits need root"
    lacking = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if lacking:
        return f"{' and '.join(lacking)} not found (package iproute2)"
    return ""


def call(command: Command) -> str:
    """Run one command and return what it printed.

    Raises:
        UnavailableError: If it fails; the message has the command and its words.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    if done.returncode:
        text = f"{' '.join(command)}: {done.stderr.strip() or f'exit {done.returncode}'}"
        raise UnavailableError.one(
            "lab-command", text, path="lab", fix="divvy lab rails down removes what is there"
        )
    return done.stdout


class RailsLab:
    """A lab that stands; as a context manager it is removed at the end.

    Args:
        fabric: What stands.

    Attributes:
        fabric: What stands now; changes are noted here and in the state file.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric

    @classmethod
    def up(cls, fabric: Fabric) -> Self:
        """Build a lab; what an earlier one of that name left half-built is removed first.

        Raises:
            DeniedError: If this machine or user cannot.
            InputError: If one of that name stands.
            UnavailableError: If a command fails; what was built is removed again.
        """
        _require()
        with _locked():
            if _path(fabric.name).exists():
                fix = f"divvy lab rails down --name {fabric.name}, or take another --name"
                raise InputError.one(
                    "lab-exists", f"a lab {fabric.name!r} stands already", path="--name", fix=fix
                )
            _clear(fabric.name)
            try:
                _run(plan.build(fabric))
                _write(fabric)
            except BaseException:
                _clear(fabric.name)
                raise
        return cls(fabric)

    @classmethod
    def find(cls, name: str) -> Self:
        """Return the lab of a name.

        Raises:
            NotFoundError: If there is none; the names of those that stand are listed.
        """
        plan.check_name(name)
        try:
            return cls(plan.parse_state(_path(name).read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise NotFoundError.one(
                "lab-unknown",
                f"no lab {name!r}",
                path="--name",
                allowed=", ".join(standing()) or "none stands",
            ) from None
        except ValueError as error:
            raise UnavailableError.one(
                "lab-state",
                f"{_path(name)}: {error}",
                path="--name",
                fix=f"divvy lab rails down --name {name} removes what is there",
            ) from error

    def set_rate(self, host: int, rail: int, rate: int) -> None:
        """Change the rate of a rail, both ways, while it is in use."""
        self._expect(host, rail)
        with self._changing():
            _run(plan.limit(self.fabric, host, rail, rate))
            self.fabric = plan.with_rate(self.fabric, host, rail, rate)

    def cut(self, host: int, rail: int) -> None:
        """Cut a rail at the switch: what is on the way is lost, and the host's carrier goes."""
        self._port(host, rail, up=False)

    def restore(self, host: int, rail: int) -> None:
        """Join a rail again; its rate is what it was."""
        self._port(host, rail, up=True)

    def _port(self, host: int, rail: int, *, up: bool) -> None:
        self._expect(host, rail)
        with self._changing():
            _run(plan.switch_port(self.fabric, host, rail, up=up))
            self.fabric = plan.with_cut(self.fabric, host, rail, cut=not up)

    def counters(self, host: int) -> dict[str, tuple[int, int]]:
        """Return bytes sent and received by each rail of a host, headers with them, as its kernel counts."""
        found = plan.counters_of(call(("ip", "-n", self.fabric.namespace(host), "-s", "-j", "link")))
        return {plan.device(r): found[plan.device(r)] for r in range(self.fabric.rails)}

    def down(self) -> None:
        """Remove the lab."""
        remove(self.fabric.name)

    def _expect(self, host: int, rail: int) -> None:
        """Refuse a host or rail that the lab has not.

        Raises:
            NotFoundError: If it has not.
        """
        if not (0 <= host < self.fabric.hosts and 0 <= rail < self.fabric.rails):
            allowed = f"h0 to h{self.fabric.hosts - 1}, rail0 to rail{self.fabric.rails - 1}"
            raise NotFoundError.one(
                "lab-place", f"lab {self.fabric.name} has no h{host} on rail{rail}", allowed=allowed
            )

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Change the newest state, and write it."""
        _require()
        with _locked():
            self.fabric = type(self).find(self.fabric.name).fabric
            yield
            _write(self.fabric)

    def __enter__(self) -> Self:
        """Return the lab."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the lab."""
        self.down()


def standing() -> list[str]:
    """Return the names of the labs that stand, half-built ones with them."""
    whole = {path.stem for path in state_folder().glob("*.json")}
    return sorted(whole | (set() if missing() else set(_spaces())))


def _spaces() -> dict[str, list[str]]:
    return plan.namespaces_of(call(("ip", "netns", "list")))


def remove(name: str) -> list[str]:
    """Remove a lab, whole or half-built, and return the namespaces that went; twice is harmless.

    Raises:
        DeniedError: If this machine or user cannot.
    """
    plan.check_name(name)
    _require()
    with _locked():
        gone = _clear(name)
        _path(name).unlink(missing_ok=True)
    return gone


def inside(name: str) -> list[int]:
    """Return the processes that run in the namespaces of a lab."""
    spaces = _spaces().get(name, [])
    return sorted(int(word) for space in spaces for word in call(("ip", "netns", "pids", space)).split())


def _require() -> None:
    """Refuse where no lab can be built.

    Raises:
        DeniedError: With the reason.
    """
    reason = missing()
    if reason:
        raise DeniedError.one(
            "lab-impossible", f"no lab of rails here: {reason}", path="lab", fix="run it as root on Linux"
        )


def _path(name: str) -> Path:
    return state_folder() / f"{name}.json"


def _write(fabric: Fabric) -> None:
    """Write a state file whole or not at all."""
    path = _path(fabric.name)
    draft = path.with_suffix(".new")
    draft.write_text(plan.dump(fabric), encoding="utf-8")
    draft.replace(path)


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Hold the lock of all labs: two commands never change one together."""
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(commands: Iterable[Command]) -> None:
    for command in commands:
        call(command)


def _clear(name: str) -> list[str]:
    """Remove every namespace of a name and wait until none is listed."""
    gone: list[str] = []
    for attempt in range(_TRIES):
        spaces = _spaces().get(name, [])
        if not spaces:
            break
        if attempt:
            time.sleep(0.1)
        for command in plan.remove(spaces):
            with contextlib.suppress(DivvyError):  # the listing above decides whether it went
                call(command)
        gone += [space for space in spaces if space not in gone]
    return gone
