"""``nvidia-smi mig -lgi`` tables and transcripts of ``-cgi``, ``-cci``, ``-dci``, ``-dgi``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from divvy.fleet.mig.parse.lines import Faults, cells, content
from divvy.fleet.mig.profile import parse_profile_name

_ROW: Final = re.compile(r"(\d{1,4})\s+MIG\s+(\S+)\s+(\d{1,4})\s+(\d{1,4})\s+(\d{1,2}):(\d{1,2})", re.ASCII)
_HEAD: Final = re.compile(r"GPU instances:|GPU\s+Name\s+Profile|ID\s+ID\s+Start:Size")
_NONE: Final = re.compile(r"^\s*No GPU instances found(?:: Not Found)?\s*$")

_MADE: Final = re.compile(
    r"Successfully created (GPU|compute) instance(?: ID)?\s+(?:ID\s+)?(\d+) on GPU\s+(\d+)"
    r"(?: GPU instance ID\s+(\d+))? using profile MIG (\S+) \(ID\s+(\d+)\)",
    re.ASCII,
)
_GONE: Final = re.compile(
    r"Successfully destroyed (GPU|compute) instance ID\s+(\d+) from GPU\s+(\d+)(?: GPU instance ID\s+(\d+))?",
    re.ASCII,
)
_REFUSED: Final = re.compile(r"(?:Unable|Failed) to (create|destroy)\b.*?:\s*(.+)", re.ASCII)
_GPU: Final = re.compile(r"GPU\s+(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Instance:
    """A GPU instance as ``-lgi`` lists it."""

    gpu: int
    profile: str
    profile_id: int
    instance_id: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Act:
    """One line of a transcript.

    Attributes:
        verb: ``create`` or ``destroy``.
        target: ``gpu`` or ``compute`` instance; empty where a refusal does not say.
        succeeded: False for a refusal.
        gpu: The GPU; -1 where the line does not say.
        instance_id: The instance; -1 for a refusal.
        parent: The GPU instance of a compute instance; -1 otherwise.
        profile: Name, where the line has it.
        reason: What the driver said, for a refusal.
    """

    verb: str
    target: str
    succeeded: bool
    gpu: int
    instance_id: int = -1
    parent: int = -1
    profile: str = ""
    reason: str = ""


def parse_lgi(text: str, path: str = "") -> tuple[Instance, ...]:
    """Return the GPU instances that ``nvidia-smi mig -lgi`` lists; none where it says that there are none.

    Raises:
        InputError: With every line that is damaged or means nothing, and for two instances that overlap.
    """
    faults = Faults(path, "nvidia-smi mig -lgi")
    rows: list[Instance] = []
    taken: dict[tuple[int, int], Instance] = {}
    none = False
    for number, line in content(text):
        if _HEAD.search(line):
            continue
        if _NONE.match(line):
            none = True
            continue
        match = _ROW.fullmatch(cells(line))
        if match is None:
            faults.unread(number, line)
            continue
        gpu, name, profile_id, instance_id, start, size = match.groups()
        row = Instance(
            int(gpu),
            parse_profile_name(name, path=f"{path}:{number}").text,
            int(profile_id),
            int(instance_id),
            int(start),
            int(size),
        )
        for cell in range(row.start, row.start + row.size):
            other = taken.setdefault((row.gpu, cell), row)
            if other is not row:
                faults.add(
                    number, f"memory slice {cell} of GPU {row.gpu} is taken by instance {other.instance_id}"
                )
        rows.append(row)
    faults.close(text)
    faults.finish(empty=not rows and not none)
    return tuple(rows)


def parse_transcript(text: str, path: str = "") -> tuple[Act, ...]:
    """Return what a transcript of ``nvidia-smi mig`` commands says was done or refused.

    Raises:
        InputError: With every line that is neither a prompt nor such an answer.
    """
    faults = Faults(path, "a transcript of nvidia-smi mig")
    acts: list[Act] = []
    for number, line in content(text):
        act = read_act(line)
        if act is None:
            faults.unread(number, line)
        else:
            acts.append(act)
    faults.finish(empty=not acts)
    return tuple(acts)


def read_act(line: str) -> Act | None:
    """Return what one line of a transcript says, or None if it is no such line."""
    body = line.strip()
    made, gone, refused = _MADE.fullmatch(body), _GONE.fullmatch(body), _REFUSED.fullmatch(body)
    if made is not None:
        parent = -1 if made[4] is None else int(made[4])
        return Act("create", made[1].lower(), True, int(made[3]), int(made[2]), parent, made[5])
    if gone is not None:
        parent = -1 if gone[4] is None else int(gone[4])
        return Act("destroy", gone[1].lower(), True, int(gone[3]), int(gone[2]), parent)
    if refused is not None:
        gpu = _GPU.search(body.replace("GPU instance", ""))
        target = "compute" if "compute" in body else "gpu" if "GPU instance" in body else ""
        return Act(refused[1], target, False, -1 if gpu is None else int(gpu[1]), reason=refused[2])
    return None
