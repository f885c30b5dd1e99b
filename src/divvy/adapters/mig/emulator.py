"""An EMULATOR of nvidia-smi for MIG: no GPU is touched. It obeys the rules and fails as drivers do.

Built from recorded outputs: greedy placement from the last start where none is given, ``In use by another
client`` for a busy instance or one that still has a compute instance, ``Insufficient Resources`` where there
is no room, several profiles of one ``-cgi`` created one by one so that a failure leaves the first ones there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from divvy.fleet.mig.layout import free_instances, greedy_start
from divvy.fleet.mig.profile import Placement, Profile, Sku

_IN_USE: Final = "In use by another client"
_NO_ROOM: Final = "Insufficient Resources"
_NOT_FOUND: Final = "Not Found"
_MOST_GPUS: Final = 10_000
#: Profile numbers of seven-slice and four-slice parts, as recorded from drivers.
_IDS: Final = {
    (7, 1, 1): 19,
    (7, 1, 2): 15,
    (7, 2, 2): 14,
    (7, 3, 4): 9,
    (7, 4, 4): 5,
    (7, 7, 8): 0,
    (4, 1, 1): 14,
    (4, 2, 2): 5,
    (4, 4, 4): 0,
}


class Crash(Exception):  # noqa: N818 - it is no error of the program: the emulated machine dies here
    """The emulated process died half-way: what was done stays done."""


@dataclass(slots=True)
class _Instance:
    gpu: int
    profile: str
    start: int
    instance_id: int
    computes: int = 0
    busy: bool = False


@dataclass
class EmulatedSmi:
    """Answers nvidia-smi commands for emulated GPUs.

    Attributes:
        sku: The kind of every GPU.
        gpus: How many.
        modes: MIG mode by GPU.
        crash_after: After so many acts that changed something the process dies; None for never.
    """

    sku: Sku
    gpus: int
    modes: list[bool] = field(default_factory=list)
    crash_after: int | None = None
    _instances: list[_Instance] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Let MIG mode be off where nothing is said."""
        self.modes += [False] * (self.gpus - len(self.modes))

    def __call__(self, arguments: Sequence[str]) -> tuple[int, str]:
        """Run a command: return its exit code and output."""
        words = list(arguments)[1:]
        gpu = int(words[words.index("-i") + 1]) if "-i" in words else None
        if gpu is not None and not 0 <= gpu < self.gpus:
            return 6, f"No devices were found: GPU {gpu}\n"
        if "-mig" in words:
            return self._switch(gpu or 0, words[words.index("-mig") + 1])
        if any(word.startswith("--query-gpu=mig.mode") for word in words):
            return 0, ("Enabled" if self.modes[gpu or 0] else "Disabled") + "\n"
        if any(word.startswith("--query-gpu=name") for word in words):
            return 0, f"{self.sku.name} (emulated)\n"
        if words[:1] != ["mig"]:
            return 1, f"the emulator does not know {' '.join(words)}\n"
        return self._mig(words, gpu)

    def _mig(self, words: list[str], gpu: int | None) -> tuple[int, str]:
        instance = int(words[words.index("-gi") + 1]) if "-gi" in words else None
        answers: dict[str, Callable[[], tuple[int, str]]] = {
            "-lgi": lambda: self._list(gpu),
            "-lgip": lambda: (0, self._profiles(gpu or 0)),
            "-lgipp": lambda: (0, self._placements(gpu or 0)),
            "-cgi": lambda: self._create(gpu or 0, words[words.index("-cgi") + 1], "-C" in words),
            "-cci": lambda: self._compute(gpu or 0, instance),
            "-dci": lambda: self._destroy_computes(gpu, instance),
            "-dgi": lambda: self._destroy(gpu, instance),
        }
        for word, answer in answers.items():
            if word in words:
                return answer()
        return 1, f"the emulator does not know mig {' '.join(words)}\n"

    def mark_busy(self, gpu: int, start: int, *, busy: bool = True) -> None:
        """Let a process hold, or leave, the instance that begins at `start`."""
        for instance in self._instances:
            if (instance.gpu, instance.start) == (gpu, start):
                instance.busy = busy

    def placed(self, gpu: int) -> list[Placement]:
        """Return the slices of a GPU."""
        return sorted(
            Placement(i.start, self.sku.profile(i.profile).size, i.profile)
            for i in self._instances
            if i.gpu == gpu
        )

    def _act(self) -> None:
        """Count an act that changes something; die where that was asked for."""
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after < 0:
                raise Crash

    def _id(self, profile: Profile) -> int:
        base = _IDS.get((self.sku.compute_slices, profile.gpcs, profile.size), 40)
        return base if profile.base else 20 + [p.name for p in self.sku.profiles].index(profile.name)

    def _find(self, text: str) -> Profile | None:
        for profile in self.sku.profiles:
            if text in {profile.name, str(self._id(profile))}:
                return profile
        return None

    def _switch(self, gpu: int, mode: str) -> tuple[int, str]:
        if any(instance.gpu == gpu for instance in self._instances):
            return 255, f"Unable to change MIG Mode for GPU {gpu}: {_IN_USE}\n"
        self._act()
        self.modes[gpu] = mode == "1"
        word = "Enabled" if self.modes[gpu] else "Disabled"
        return 0, f"{word} MIG Mode for GPU {gpu:08d}:00:00.0\nAll done.\n"

    def _create(self, gpu: int, wishes: str, with_computes: bool) -> tuple[int, str]:  # noqa: FBT001
        if not self.modes[gpu]:
            return 6, f"No MIG-supported devices found: MIG mode of GPU {gpu} is disabled\n"
        said: list[str] = []
        for wish in wishes.split(","):
            name, _, start_text = wish.partition(":")
            profile = self._find(name.strip())
            if profile is None:
                said.append(
                    f"Unable to create a GPU instance on GPU {gpu:2d} using profile {name}: Invalid Argument"
                )
                return 1, "\n".join([*said, "Failed to create GPU instances: Invalid Argument", ""])
            start = int(start_text) if start_text else greedy_start(self.sku, profile, self.placed(gpu))
            if start is None or not self._room(gpu, profile, start):
                what = f"a GPU instance on GPU {gpu:2d} using profile {self._id(profile)}"
                said.append(f"Unable to create {what}: {_NO_ROOM}")
                return 19, "\n".join([*said, f"Failed to create GPU instances: {_NO_ROOM}", ""])
            self._act()
            made = _Instance(gpu, profile.name, start, self._free_id(gpu, profile))
            self._instances.append(made)
            said.append(
                f"Successfully created GPU instance ID {made.instance_id:2d} on GPU {gpu:2d} "
                f"using profile MIG {profile.name} (ID {self._id(profile):2d})"
            )
            if with_computes:
                self._act()
                made.computes = 1
                said.append(
                    f"Successfully created compute instance ID  0 on GPU {gpu:2d} GPU instance ID "
                    f"{made.instance_id:2d} using profile MIG {profile.name} (ID {profile.gpcs - 1:2d})"
                )
        return 0, "\n".join([*said, ""])

    def _room(self, gpu: int, profile: Profile, start: int) -> bool:
        if start not in profile.starts:
            return False
        present = self.placed(gpu)
        mask = sum(p.mask for p in present)
        compute = sum(self.sku.profile(p.profile).gpcs for p in present)
        same = sum(p.profile == profile.name for p in present)
        return (
            not mask & Placement(start, profile.size, profile.name).mask
            and compute + profile.gpcs <= self.sku.compute_slices
            and same < profile.limit
        )

    def _free_id(self, gpu: int, profile: Profile) -> int:
        """Return an unused id: drivers number 1g from 7, 2g from 3, 3g and 4g from 1, the whole with 0."""
        first = {1: 7, 2: 3, 3: 1, 4: 1}.get(profile.gpcs, 0)
        used = {i.instance_id for i in self._instances if i.gpu == gpu}
        return next(number for number in range(first, first + 64) if number not in used)

    def _chosen(self, gpu: int | None, instance: int | None) -> list[_Instance]:
        return [
            i
            for i in self._instances
            if (gpu is None or i.gpu == gpu) and (instance is None or i.instance_id == instance)
        ]

    def _compute(self, gpu: int, instance: int | None) -> tuple[int, str]:
        said = []
        for one in self._chosen(gpu, instance):
            if not one.computes:
                self._act()
                one.computes = 1
                said.append(
                    f"Successfully created compute instance ID  0 on GPU {gpu:2d} GPU instance ID "
                    f"{one.instance_id:2d} using profile MIG {one.profile} (ID  0)"
                )
        return (0, "\n".join([*said, ""])) if said else (6, f"No GPU instances found: {_NOT_FOUND}\n")

    def _destroy_computes(self, gpu: int | None, instance: int | None) -> tuple[int, str]:
        chosen = [one for one in self._chosen(gpu, instance) if one.computes]
        if not chosen:
            return 6, f"No compute instances found: {_NOT_FOUND}\n"
        said = []
        for one in chosen:
            place = f"GPU {one.gpu:2d} GPU instance ID {one.instance_id:2d}"
            if one.busy:
                said.append(f"Unable to destroy compute instance ID  0 from {place}: {_IN_USE}")
                return 19, "\n".join([*said, f"Failed to destroy compute instances: {_IN_USE}", ""])
            self._act()
            one.computes = 0
            said.append(f"Successfully destroyed compute instance ID  0 from {place}")
        return 0, "\n".join([*said, ""])

    def _destroy(self, gpu: int | None, instance: int | None) -> tuple[int, str]:
        chosen = self._chosen(gpu, instance)
        if not chosen:
            return 6, f"No GPU instances found: {_NOT_FOUND}\n"
        said = []
        for one in chosen:
            if one.computes or one.busy:
                said.append(
                    f"Unable to destroy GPU instance ID {one.instance_id:2d} from GPU {one.gpu:2d}: {_IN_USE}"
                )
                return 19, "\n".join([*said, f"Failed to destroy GPU instances: {_IN_USE}", ""])
            self._act()
            self._instances.remove(one)
            said.append(f"Successfully destroyed GPU instance ID {one.instance_id:2d} from GPU {one.gpu:2d}")
        return 0, "\n".join([*said, ""])

    def _list(self, gpu: int | None) -> tuple[int, str]:
        chosen = self._chosen(gpu, None)
        if not chosen:
            return 6, f"No GPU instances found: {_NOT_FOUND}\n"
        line = "+-------------------------------------------------------+"
        rows = [
            line,
            "| GPU instances:                                        |",
            "| GPU   Name             Profile  Instance   Placement  |",
            "|                          ID       ID       Start:Size |",
            "|=======================================================|",
        ]
        for one in sorted(chosen, key=lambda i: (i.gpu, i.start)):
            profile = self.sku.profile(one.profile)
            place = f"{one.start}:{profile.size}"
            name = f"{one.gpu:3d}  MIG {one.profile:<14} {self._id(profile):3d}"
            rows += [f"| {name}      {one.instance_id:3d}          {place:<7} |", line]
        return 0, "\n".join([*rows, ""])

    def _profiles(self, gpu: int) -> str:
        rows = ["| GPU instance profiles:                                                      |"]
        for p in self.sku.profiles:
            free = free_instances(self.sku, p, self.placed(gpu))
            memory = p.memory_gb - 0.25
            name = f"{gpu:3d}  MIG {p.name:<14} {self._id(p):3d}     {free}/{p.limit}   {memory:9.2f}"
            rows += [
                f"| {name}      No   {p.sms:4d}     1     0   |",
                f"|                                                          {p.gpcs:3d}     0     0   |",
            ]
        return "\n".join([*rows, ""])

    def _placements(self, gpu: int) -> str:
        return "".join(
            f"GPU {gpu:2d} Profile ID {self._id(p):2d} Placement{'s' if len(p.starts) > 1 else ' '}: "
            f"{{{','.join(map(str, p.starts))}}}:{p.size}\n"
            for p in self.sku.profiles
        )

    def to_json(self) -> dict[str, Any]:
        """Return the state, to be kept between commands."""
        return {
            "emulator": True,
            "sku": self.sku.name,
            "gpus": self.gpus,
            "modes": self.modes,
            "instances": [
                {
                    "gpu": i.gpu,
                    "profile": i.profile,
                    "start": i.start,
                    "id": i.instance_id,
                    "computes": i.computes,
                    "busy": i.busy,
                }
                for i in self._instances
            ],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any], sku: Sku) -> EmulatedSmi:
        """Return the emulator in a state that `to_json` gave.

        Raises:
            ValueError: If the state is not one, is of another SKU, or holds slices that break the rules.
            KeyError: If a member is missing.
            TypeError: If a member is of another kind.
        """
        gpus, modes = int(document["gpus"]), document["modes"]
        if document["sku"] != sku.name:
            raise ValueError(f"it emulates {document['sku']}, not {sku.name}")
        if not 0 < gpus <= _MOST_GPUS or len(modes) > gpus:
            raise ValueError(f"{gpus} GPUs with {len(modes)} modes")
        made = cls(sku, gpus, [bool(mode) for mode in modes])
        for i in document["instances"]:
            one = _Instance(
                int(i["gpu"]),
                str(i["profile"]),
                int(i["start"]),
                int(i["id"]),
                int(i["computes"]),
                bool(i["busy"]),
            )
            profile = next((p for p in sku.profiles if p.name == one.profile), None)
            if profile is None or not 0 <= one.gpu < gpus or not made._room(one.gpu, profile, one.start):
                raise ValueError(f"{one.profile}@{one.start} has no place on GPU {one.gpu}")
            made._instances.append(one)
        return made

    def save(self, path: Path) -> None:
        """Write the state to a file, whole or not at all."""
        draft = path.with_name(path.name + ".new")
        draft.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
        draft.replace(path)
