"""GPUs as the driver reports them, by NVML (extra ``nvml``); a machine without them says why."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from divvy.fleet.device import DEVICE_MODELS

_GIB: Final = 2**30
_GB: Final = 10**9
_FAMILY: Final = re.compile(r"[A-Z]+\d+[A-Z]*", re.ASCII)
_STATED: Final = re.compile(r"(\d+)\s?GB", re.ASCII)
_NEAR: Final = 0.08


class Gpu(NamedTuple):
    """One GPU.

    Attributes:
        ordinal: Number in the order of PCI addresses, as NVML and ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` count.
        uuid: Name that never changes.
        model: Name of its `DeviceModel`.
        minor: Minor number of its device file, ``/dev/nvidiaMINOR``.
        mig: Whether it is partitioned, and so not to be had as a whole.
    """

    ordinal: int
    uuid: str
    model: str
    minor: int
    mig: bool = False


class Census(NamedTuple):
    """The GPUs of this machine, and why there are none or why some were left out."""

    gpus: tuple[Gpu, ...]
    reason: str = ""


def model_of(name: str, memory_bytes: int) -> str:
    """Return the model that NVML's product name and memory mean, such as ``H100-80GB``.

    The same product is spelled in several ways (``NVIDIA H100 80GB HBM3``, ``NVIDIA H100 PCIe``), and its
    memory is reported short of the printed size, by GB or by GiB.
    """
    plain = name.replace("NVIDIA", "").replace("Tesla", "").strip()
    family = _FAMILY.search(plain)
    if family is None:
        return "-".join(plain.split()) or "gpu"
    kind = family.group()
    stated = _STATED.search(plain)
    if stated is not None:
        return f"{kind}-{stated.group(1)}GB"
    sizes = {
        int(known.rpartition("-")[2].removesuffix("GB")): known
        for known in DEVICE_MODELS
        if known.startswith(f"{kind}-")
    }
    off = {size: min(abs(memory_bytes / unit / size - 1) for unit in (_GB, _GIB)) for size in sizes}
    nearest = min(off, key=lambda size: off[size], default=0)
    if nearest and off[nearest] <= _NEAR:
        return sizes[nearest]
    return f"{kind}-{round(memory_bytes / _GIB)}GB"


def take_census(load: Callable[[], Any] = lambda: importlib.import_module("pynvml")) -> Census:
    """Return the GPUs of this machine; `load` gives the NVML module (tests give their own)."""
    try:
        nvml = load()
    except ImportError:
        return Census((), "the NVML bindings are not installed (pip install 'divvy-gpu[nvml]')")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Census((), f"NVML: {error}")
    try:
        gpus = [_read(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        return Census((), f"NVML: {error}")
    finally:
        nvml.nvmlShutdown()
    whole = tuple(gpu for gpu in gpus if not gpu.mig)
    if len(whole) < len(gpus):
        return Census(whole, f"{len(gpus) - len(whole)} of {len(gpus)} GPUs are partitioned (MIG)")
    return Census(whole, "" if gpus else "NVML reports no GPU")


class Gauge:
    """Reads how busy GPUs are. Keeps NVML open between readings.

    Args:
        load: Gives the NVML module.
    """

    def __init__(self, load: Callable[[], Any] = lambda: importlib.import_module("pynvml")) -> None:
        self._nvml = load()
        self._nvml.nvmlInit()

    def read(self, index: int) -> tuple[float | None, str]:
        """Return the share of time in which kernels ran, 0 to 1, or None and why it is not known."""
        nvml = self._nvml
        try:
            rates = nvml.nvmlDeviceGetUtilizationRates(nvml.nvmlDeviceGetHandleByIndex(index))
        except nvml.NVMLError as error:
            return None, f"NVML: {error}"
        return rates.gpu / 100, ""


def _read(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    model = model_of(_text(nvml.nvmlDeviceGetName(handle)), nvml.nvmlDeviceGetMemoryInfo(handle).total)
    try:
        minor = int(nvml.nvmlDeviceGetMinorNumber(handle))
    except nvml.NVMLError:
        minor = index  # an old driver; the two differ only where device files were made by hand
    try:
        mig = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:
        mig = False  # a model that cannot be partitioned
    return Gpu(index, _text(nvml.nvmlDeviceGetUUID(handle)), model, minor, mig)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
