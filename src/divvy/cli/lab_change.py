"""A change of layouts while the lab serves: slices drain, go, come and are admitted in the planned order."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from divvy.adapters.lab.lab import Lab
from divvy.adapters.lab.spec import SliceSpec, slice_name
from divvy.adapters.mig.carry_out import carry_out
from divvy.adapters.mig.port import Driver
from divvy.cli.lab_backends import write_backends
from divvy.errors import EngineError
from divvy.fleet.mig.change import DESTROY, DRAIN, SERVE, Change, Step, change_to_json

_WAIT_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.02


@dataclass(slots=True)
class Front:
    """The router before the lab, and the file that it reads.

    Attributes:
        url: Where it listens.
        file: Its back-ends file.
        profile: Latency profile in that file.
        slo_ms: Objective in that file.
        rule: Rule in that file.
    """

    url: str
    file: Path
    profile: str
    slo_ms: float
    rule: str

    def states(self) -> dict[str, str]:
        """Return the state of every slice that the router knows."""
        wire = HTTPConnection("127.0.0.1", int(self.url.rpartition(":")[2]), timeout=5)
        try:
            wire.request("GET", "/divvy/slices")
            rows = json.loads(wire.getresponse().read())["slices"]
        finally:
            wire.close()
        return {row["name"]: row["state"] for row in rows}

    def declare(self, lab: Lab, leave_out: frozenset[str] = frozenset()) -> None:
        """Write the file anew, and wait until the router has what is in it and nothing else.

        Raises:
            EngineError: If it does not.
        """
        shown = [one for name, one in sorted(lab.slices.items()) if name not in leave_out]
        write_backends(self.file, shown, self.profile, self.slo_ms, rule=self.rule)
        wanted = {one.spec.name for one in shown}
        end = time.monotonic() + _WAIT_SECONDS
        while (states := self.states()) != dict.fromkeys(wanted, "up"):
            if time.monotonic() > end:
                raise EngineError.one("lab-change", f"the router has {states}, not {sorted(wanted)}")
            time.sleep(_LOOK_SECONDS)


@dataclass(slots=True)
class Clock:
    """Seconds that each kind of step took, and by GPU those from its first step to its last."""

    by_act: dict[str, list[float]] = field(default_factory=dict)
    by_gpu: dict[int, float] = field(default_factory=dict)

    def note(self, step: Step, seconds: float) -> None:
        """Keep the seconds of a step."""
        self.by_act.setdefault(step.act, []).append(seconds)
        self.by_gpu[step.gpu] = self.by_gpu.get(step.gpu, 0.0) + seconds

    def means(self) -> dict[str, float]:
        """Return the mean seconds of each kind of step."""
        return {act: sum(seconds) / len(seconds) for act, seconds in self.by_act.items()}


class LiveChange:
    """Carries out a change of the lab while it serves.

    Args:
        lab: The servers.
        front: The router before them.
        driver: What cuts (an emulator here).
        specs: What to start for a new slice, by its name.
        note: File in which the change is kept after every step, so that it can go on after a crash.
    """

    def __init__(
        self, lab: Lab, front: Front, driver: Driver, specs: Mapping[str, SliceSpec], note: Path
    ) -> None:
        self._lab, self._front, self._driver, self._specs, self._note = lab, front, driver, specs, note
        self._begun: tuple[Step, float] | None = None
        self._leaving: set[str] = set()
        self.clock = Clock()

    def run(self, change: Change) -> Change:
        """Do what is pending, and return the change with its steps done."""
        return carry_out(self._driver, change, announce=self._announce, keep=self._keep)

    def _announce(self, step: Step) -> None:
        """Do the routers' and servers' part of a step; the driver's follows."""
        self._begun = step, time.monotonic()
        name = slice_name(step.gpu, step.placement.profile, step.placement.start)
        if step.act == DRAIN:
            self._leaving.add(name)
            if name in self._lab.slices:
                self._front.declare(self._lab, frozenset(self._leaving))
        elif step.act == DESTROY:
            self._lab.stop([name])
        elif step.act == SERVE and name not in self._lab.slices:
            self._lab.start([self._specs[name]], apart=True)
            self._front.declare(self._lab, frozenset(self._leaving - {name}))

    def _keep(self, change: Change) -> None:
        self._note.write_text(json.dumps(change_to_json(change)), encoding="utf-8")
        if self._begun is not None:
            step, begun = self._begun
            self.clock.note(step, time.monotonic() - begun)
            self._begun = None


def lost_by_steps(change: Change, seconds: Mapping[str, float]) -> float:
    """Return the compute-slice seconds that a change costs when its steps take so long.

    As the plan counts: what leaves a GPU is out of service from the first step there to the last.
    """
    lost = 0.0
    for gpu, idle in enumerate(change.gpcs_idle):
        steps = [step for step in change.steps if step.gpu == gpu]
        lost += idle * sum(seconds.get(step.act, 0.0) for step in steps)
    return lost


def lost_by_clock(change: Change, clock: Clock) -> float:
    """Return the compute-slice seconds that a change did cost."""
    return sum(idle * clock.by_gpu.get(gpu, 0.0) for gpu, idle in enumerate(change.gpcs_idle))
