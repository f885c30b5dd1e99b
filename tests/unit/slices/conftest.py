"""NVML's own Python package over a library that is not there: its functions, in Python, on the emulator."""

from __future__ import annotations

from ctypes import addressof, c_uint, cast

import pytest

from divvy.adapters.mig.emulator import EmulatedSmi
from divvy.fleet.mig.skus import find_sku

# ruff: noqa: ARG002, N802 - NVML's own names and arguments
A100 = find_sku("A100-80GB")


def _words(code):
    return {2: b"Invalid Argument", 3: b"Not Supported", 19: b"In use by another client"}.get(
        code, b"Insufficient Resources"
    )


class Library:
    """What libnvidia-ml does for one A100, as far as the driver asks: C's arguments, C's return codes."""

    def __init__(self, nvml):
        self.nvml, self.machine = nvml, EmulatedSmi(A100, 1)
        self.cells = {}
        self.nvmlErrorString = _words  # a function: the package sets its result type

    def pointer(self, instance, kind):
        """Return an opaque handle of an instance."""
        cell = c_uint()
        handle = cast(addressof(cell), kind)
        self.cells[cast(handle, self.nvml.c_void_p).value] = (instance, cell)
        return handle

    def meant(self, handle):
        return self.cells[cast(handle, self.nvml.c_void_p).value][0]

    def run(self, words):
        code, said = self.machine(["nvidia-smi", *words.split()])
        if not code:
            return 0
        return (
            self.nvml.NVML_ERROR_INSUFFICIENT_RESOURCES if "Insuff" in said else self.nvml.NVML_ERROR_IN_USE
        )

    def nvmlInitWithFlags(self, flags):
        return 0

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = 1
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, device):
        return 0 if getattr(index, "value", index) == 0 else self.nvml.NVML_ERROR_INVALID_ARGUMENT

    def nvmlDeviceGetName(self, device, buffer, size):
        buffer.value = b"NVIDIA A100-SXM4-80GB"
        return 0

    def nvmlDeviceGetMigMode(self, device, current, pending):
        current._obj.value = pending._obj.value = self.machine.modes[0]
        return 0

    def nvmlDeviceSetMigMode(self, device, mode, status):
        self.machine.modes[0] = bool(mode)
        return 0

    def nvmlDeviceGetGpuInstanceProfileInfoV(self, device, index, info):
        if index >= len(A100.profiles):
            return self.nvml.NVML_ERROR_NOT_SUPPORTED
        profile, record = A100.profiles[index], info._obj
        record.id, record.instanceCount = index, profile.limit
        record.multiprocessorCount, record.name = profile.sms, f"MIG {profile.name}".encode()
        return 0

    def nvmlDeviceGetGpuInstancePossiblePlacements_v2(self, device, profile_id, places, count):
        profile = A100.profiles[profile_id]
        for place, start in zip(places or (), profile.starts, strict=False):
            place.start, place.size = start, profile.size
        count._obj.value = len(profile.starts)
        return 0

    def nvmlDeviceGetGpuInstances(self, device, profile_id, found, count):
        mine = [i for i in self.machine._instances if i.profile == A100.profiles[profile_id].name]
        for at, instance in enumerate(mine):
            found[at] = self.pointer(instance, self.nvml.c_nvmlGpuInstance_t)
        count._obj.value = len(mine)
        return 0

    def nvmlGpuInstanceGetInfo(self, handle, info):
        instance, record = self.meant(handle), info._obj
        record.id, record.placement.start = instance.instance_id, instance.start
        record.placement.size = A100.profile(instance.profile).size
        return 0

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, device, profile_id, place, handle):
        code = self.run(f"mig -i 0 -cgi {A100.profiles[profile_id].name}:{place._obj.start}")
        if not code:
            made = self.pointer(self.machine._instances[-1], self.nvml.c_nvmlGpuInstance_t)
            handle._obj.contents = made.contents
        return code

    def nvmlDeviceGetGpuInstanceById(self, device, number, handle):
        one = next(i for i in self.machine._instances if i.instance_id == number)
        handle._obj.contents = self.pointer(one, self.nvml.c_nvmlGpuInstance_t).contents
        return 0

    def nvmlGpuInstanceGetComputeInstanceProfileInfoV(self, handle, constant, engine, info):
        sizes = {self.nvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE + i: i + 1 for i in range(4)} | {4: 7}
        if sizes.get(constant, 99) > A100.profile(self.meant(handle).profile).gpcs:
            return self.nvml.NVML_ERROR_NOT_SUPPORTED
        info._obj.id, info._obj.instanceCount = constant, 1
        return 0

    def nvmlGpuInstanceCreateComputeInstance(self, handle, profile_id, compute):
        self.meant(handle).computes = 1
        return 0

    def nvmlGpuInstanceGetComputeInstances(self, handle, profile_id, found, count):
        instance = self.meant(handle)
        whole = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}[A100.profile(instance.profile).gpcs] == profile_id
        count._obj.value = int(bool(instance.computes) and whole)
        if count._obj.value:
            found[0] = self.pointer(instance, self.nvml.c_nvmlComputeInstance_t)
        return 0

    def nvmlComputeInstanceDestroy(self, compute):
        self.meant(compute).computes = 0
        return 0

    def nvmlGpuInstanceDestroy(self, handle):
        return self.run(f"mig -i 0 -gi {self.meant(handle).instance_id} -dgi")


@pytest.fixture
def nvml(monkeypatch):
    """Return the real package `pynvml`, on a library that is Python."""
    package = pytest.importorskip("pynvml")
    monkeypatch.setattr(package, "nvmlLib", Library(package))
    monkeypatch.setattr(package, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(package, "_LoadNvmlLibrary", lambda: None)
    monkeypatch.setattr(package, "_nvmlLib_refcount", 0)
    return package
