"""What Ray shows, and what is asked of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

#: Begins the line in which the driver says how a run ended (see `driver.VERDICT`).
VERDICT: Final = "divvy-verdict "
OVER: Final = ("SUCCEEDED", "FAILED", "STOPPED")


class Submit(NamedTuple):
    """Begin a Ray job; one of this submission id that is there already is let be."""

    run: str
    body: dict[str, Any]


class Stop(NamedTuple):
    """Have a Ray job leave."""

    run: str


class Forget(NamedTuple):
    """Remove the record of a Ray job that is over."""

    run: str


Command = Submit | Stop | Forget


@dataclass(frozen=True, slots=True)
class RayJob:
    """A Ray job of this control plane.

    Attributes:
        run: Submission id.
        status: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED.
        began: When all its devices were held, ms; 0: not yet, or not seen.
        ended: When it was over, ms; 0 before.
        exit_code: Exit code of its driver; None where there is none.
        error: Ray's word for what went wrong; empty where nothing did.
        message: Ray's account of it.
        log: The end of what it printed; None where it was not asked for.
    """

    run: str
    status: str
    began: int = 0
    ended: int = 0
    exit_code: int | None = None
    error: str = ""
    message: str = ""
    log: str | None = None

    @property
    def over(self) -> bool:
        """Return whether it has ended."""
        return self.status in OVER

    def verdict(self) -> dict[str, Any]:
        """Return what the driver said about the end; empty where it could not."""
        for line in reversed((self.log or "").splitlines()):
            if line.startswith(VERDICT):
                try:
                    said = json.loads(line.removeprefix(VERDICT))
                except ValueError:
                    return {}
                return said if isinstance(said, dict) else {}
        return {}


class RayNode(NamedTuple):
    """A node of the cluster that lives.

    Attributes:
        id: Ray's id of this life of the node.
        name: Name, unique here.
        gpus: GPUs that it offers.
        model: Ray's accelerator type; empty: unknown.
    """

    id: str
    name: str
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class RayView:
    """What Ray showed at one time.

    Attributes:
        at: When it was asked, ms.
        session: Name of this life of the cluster.
        nodes: By name.
        jobs: Ray jobs of this control plane by submission id.
    """

    at: int
    session: str
    nodes: Mapping[str, RayNode]
    jobs: Mapping[str, RayJob]
