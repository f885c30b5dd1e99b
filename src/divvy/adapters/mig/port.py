"""The port: what cutting a GPU needs of a driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from divvy.errors import EngineError
from divvy.fleet.mig.profile import Sku


@dataclass(frozen=True, slots=True)
class Present:
    """A GPU instance that is there."""

    gpu: int
    profile: str
    instance_id: int
    start: int
    size: int


class Driver(Protocol):
    """Creates and destroys GPU instances, each with one compute instance that fills it."""

    def enabled(self, gpu: int) -> bool:
        """Return whether MIG mode is on.

        Raises:
            EngineError: If the driver does not answer.
        """

    def enable(self, gpu: int) -> None:
        """Turn MIG mode on; the GPU must be idle.

        Raises:
            EngineError: If the driver refuses.
        """

    def instances(self) -> Sequence[Present]:
        """Return every GPU instance of the machine.

        Raises:
            EngineError: If the driver does not answer.
        """

    def create(self, gpu: int, profile: str, start: int) -> int:
        """Create an instance at a start, with its compute instance, and return its id.

        Raises:
            EngineError: If the driver refuses; the fault carries its words.
        """

    def destroy(self, gpu: int, instance_id: int) -> None:
        """Destroy an instance with its compute instances.

        Raises:
            EngineError: If the driver refuses; the fault carries its words.
        """

    def sku(self, gpu: int) -> Sku:
        """Return what the GPU can be cut into, as the driver says it.

        Raises:
            EngineError: If the driver does not answer.
        """


def refused(what: str, words: str, fix: str = "") -> EngineError:
    """Return the error for a driver's refusal."""
    code = "mig-in-use" if "In use" in words else "mig-no-room" if "Insufficient" in words else "mig-driver"
    fixes = {
        "mig-in-use": "stop what runs on it, then run apply again: it goes on where it stopped",
        "mig-no-room": "look at nvidia-smi mig -lgi: something else was created there",
    }
    return EngineError.one(code, f"{what}: {words}", fix=fix or fixes.get(code, ""))
