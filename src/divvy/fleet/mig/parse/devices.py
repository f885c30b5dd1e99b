"""``nvidia-smi -L`` with MIG devices (old and new UUIDs) and the "MIG devices" table of ``nvidia-smi``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from divvy.fleet.mig.parse.lines import Faults, cells, content
from divvy.fleet.mig.profile import parse_profile_name

_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_GPU: Final = re.compile(rf"GPU\s+(\d+): (.+?) \(UUID: (GPU-{_UUID})\)", re.IGNORECASE)
_MIG: Final = re.compile(r"MIG\s+(\S+)\s+Device\s+(\d+): \(UUID: (MIG-\S+)\)")
_NEW: Final = re.compile(rf"MIG-({_UUID})", re.IGNORECASE)
_OLD: Final = re.compile(rf"MIG-(GPU-{_UUID})/(\d+)/(\d+)", re.IGNORECASE)

_ROW: Final = re.compile(
    r"(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*\|\s*(\d+)MiB\s*/\s*(\d+)MiB\s*\|\s*(\d+)\s+(\S+)\s*\|"
    r"\s*(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)",
    re.ASCII,
)
_BAR: Final = re.compile(r"\|?\s*(\d+)MiB\s*/\s*(\d+)MiB\s*\|[\s|]*", re.ASCII)
_HEAD: Final = re.compile(r"MIG devices:|GPU\s+GI\s+CI|ID\s+ID\s+Dev|\|\s*ECC\s*\|")


@dataclass(frozen=True, slots=True)
class MigUuid:
    """The identity of a MIG device.

    Attributes:
        text: As printed.
        parent: The GPU's UUID, in the old form; empty in the new one.
        gpu_instance: In the old form; -1 in the new one.
        compute_instance: In the old form; -1 in the new one.
    """

    text: str
    parent: str = ""
    gpu_instance: int = -1
    compute_instance: int = -1


@dataclass(frozen=True, slots=True)
class MigDevice:
    """A MIG device below a GPU, as ``-L`` lists it."""

    index: int
    profile: str
    uuid: MigUuid


@dataclass(frozen=True, slots=True)
class ListedGpu:
    """A GPU with its MIG devices, as ``-L`` lists it."""

    index: int
    product: str
    uuid: str
    devices: tuple[MigDevice, ...]


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A row of the "MIG devices" table; memory in MiB."""

    gpu: int
    gpu_instance: int
    compute_instance: int
    device: int
    used_mib: int
    total_mib: int
    sms: int
    bar_used_mib: int
    bar_total_mib: int
    copy_engines: int
    encoders: int
    decoders: int
    ofa: int
    jpeg: int


def parse_mig_uuid(text: str) -> MigUuid | None:
    """Return a UUID, old ``MIG-GPU-<uuid>/<gi>/<ci>`` or new ``MIG-<uuid>``; None if neither."""
    old = _OLD.fullmatch(text)
    if old is not None:
        return MigUuid(text, old[1], int(old[2]), int(old[3]))
    return MigUuid(text) if _NEW.fullmatch(text) else None


def parse_list(text: str, path: str = "") -> tuple[ListedGpu, ...]:
    """Return the GPUs and their MIG devices that ``nvidia-smi -L`` lists.

    Raises:
        InputError: With every line that is damaged or means nothing.
    """
    faults = Faults(path, "nvidia-smi -L")
    gpus: list[tuple[int, str, str]] = []
    below: list[list[MigDevice]] = []
    for number, line in content(text):
        body = line.strip()
        gpu, mig = _GPU.fullmatch(body), _MIG.fullmatch(body)
        if gpu is not None:
            gpus.append((int(gpu[1]), gpu[2], gpu[3]))
            below.append([])
        elif mig is not None and below:
            uuid = parse_mig_uuid(mig[3])
            if uuid is None:
                faults.add(number, f"{mig[3]!r} is not a MIG UUID", "MIG-<uuid> or MIG-GPU-<uuid>/<gi>/<ci>")
                continue
            name = parse_profile_name(mig[1], path=f"{path}:{number}").text
            below[-1].append(MigDevice(int(mig[2]), name, uuid))
        elif mig is not None:
            faults.add(number, "a MIG device before any GPU")
        else:
            faults.unread(number, line)
    faults.finish(empty=not gpus)
    return tuple(ListedGpu(*gpu, tuple(devices)) for gpu, devices in zip(gpus, below, strict=True))


def parse_device_table(text: str, path: str = "") -> tuple[DeviceRow, ...]:
    """Return the rows of the "MIG devices" table of ``nvidia-smi``.

    Raises:
        InputError: With every line that is damaged or means nothing.
    """
    faults = Faults(path, "the MIG devices table of nvidia-smi")
    rows: list[DeviceRow] = []
    pending: tuple[int, re.Match[str]] | None = None
    for number, line in content(text):
        if _HEAD.search(line):
            continue
        body = cells(line)
        row, bar = _ROW.fullmatch(body), _BAR.fullmatch(body)
        if row is not None:
            if pending is not None:
                faults.add(pending[0], "the second line of this row (BAR1 usage) is missing")
            pending = (number, row)
        elif bar is not None and pending is not None:
            rows.append(_row(pending[1], int(bar[1]), int(bar[2])))
            pending = None
        elif not set(body) <= {"|", " "}:
            faults.unread(number, line)
    if pending is not None:
        faults.add(pending[0], "the second line of this row (BAR1 usage) is missing")
    faults.close(text)
    faults.finish(empty=not rows)
    return tuple(rows)


def _row(match: re.Match[str], bar_used: int, bar_total: int) -> DeviceRow:
    gpu, gi, ci, device, used, total, sms = (int(match[i]) for i in range(1, 8))
    ce, enc, dec, ofa, jpeg = (int(match[i]) for i in range(9, 14))
    return DeviceRow(gpu, gi, ci, device, used, total, sms, bar_used, bar_total, ce, enc, dec, ofa, jpeg)
