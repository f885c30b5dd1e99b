"""What a slice server of the lab is told: its name, its times, its kind of work; JSON between processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from divvy.perf.latency import INFEASIBLE, LatencyProfile

SLEEP, CPU, TRITON = "sleep", "cpu", "triton"
WORKS: Final = (SLEEP, CPU, TRITON)


@dataclass(frozen=True, slots=True)
class SliceSpec:
    """One slice server.

    Attributes:
        name: Name of the slice, such as ``gpu0-3g.40gb-4``.
        gpu: Index of its GPU.
        profile: MIG profile.
        start: First memory slice.
        gpcs: Compute slices.
        model: Name of the model that it serves.
        times_us: Microseconds by batch (index 0 is unused); `INFEASIBLE` where the batch does not fit.
        work: ``sleep`` (the time is slept: emulated), ``cpu`` or ``triton``.
        quota: Share of one processor that the slice may use, for ``cpu``; 0 for no limit.
    """

    name: str
    gpu: int
    profile: str
    start: int
    gpcs: int
    model: str
    times_us: tuple[int, ...]
    work: str = SLEEP
    quota: float = 0.0

    @property
    def emulated(self) -> bool:
        """Return whether no work is done: the time is slept."""
        return self.work != CPU

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SliceSpec:
        """Return what `to_json` wrote."""
        return cls(**{**document, "times_us": tuple(document["times_us"])})


def times_of(profile: LatencyProfile, gpcs: int, largest: int, scale: float) -> tuple[int, ...]:
    """Return the microseconds of a slice size by batch, from 0 to `largest`, times `scale`.

    A batch that does not fit stays `INFEASIBLE`: the server refuses it, as a real one does.
    """
    row = (profile.latency_us(gpcs, batch) for batch in range(1, largest + 1))
    return (INFEASIBLE, *(time if time == INFEASIBLE else max(1, round(time * scale)) for time in row))


def slice_name(gpu: int, profile: str, start: int) -> str:
    """Return the name of a slice: which GPU, which profile, where it begins."""
    return f"gpu{gpu}-{profile}-{start}"


def check_names(specs: Sequence[SliceSpec]) -> None:
    """Refuse two slices of one name.

    Raises:
        ValueError: If there are.
    """
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"slices of one name: {', '.join(twice)}")
