"""The port over NVML (extra ``nvml``): the same acts without parsing text."""

from __future__ import annotations

from ctypes import byref, c_uint
from importlib import import_module
from typing import Any, Final

from divvy.adapters.mig.port import Present, refused
from divvy.errors import EngineError, UnavailableError
from divvy.fleet.mig.profile import Profile, Sku, parse_profile_name

#: Compute slices for which NVML knows a compute instance.
_SIZES: Final = (1, 2, 3, 4, 6, 7, 8)


def open_nvml() -> NvmlDriver:
    """Return the driver over NVML.

    Raises:
        UnavailableError: If NVML's Python package is not installed.
        EngineError: If NVML cannot be started.
    """
    try:
        return NvmlDriver(import_module("pynvml"))
    except ModuleNotFoundError as error:
        raise UnavailableError.one(
            "nvml-missing", "NVML's Python package is not installed", fix="pip install divvy-gpu[nvml]"
        ) from error


class NvmlDriver:
    """Cuts through NVML.

    Args:
        nvml: The module ``pynvml``, or something that behaves like it.

    Raises:
        EngineError: If NVML cannot be started.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise refused("NVML", str(error), "install the driver, or use --driver smi") from error

    def _call(self, what: str, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, name)(*arguments)
        except self._nvml.NVMLError as error:
            raise refused(what, str(error)) from error

    def _handle(self, gpu: int) -> Any:
        return self._call(f"GPU {gpu}", "nvmlDeviceGetHandleByIndex", gpu)

    def enabled(self, gpu: int) -> bool:
        """Return whether MIG mode is on."""
        current, _ = self._call(f"MIG mode of GPU {gpu}", "nvmlDeviceGetMigMode", self._handle(gpu))
        return bool(current)

    def enable(self, gpu: int) -> None:
        """Turn MIG mode on."""
        self._call(f"MIG mode of GPU {gpu}", "nvmlDeviceSetMigMode", self._handle(gpu), 1)
        if not self.enabled(gpu):
            raise refused(
                f"MIG mode of GPU {gpu}", "In use by another client", "the GPU must be idle for this"
            )

    def _profiles(self, gpu: int) -> list[tuple[Any, Profile]]:
        """Return (NVML's record, profile) for every profile that the GPU has."""
        handle, found = self._handle(gpu), []
        for index in range(self._nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            try:
                record = self._nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, index, 2)
                places = self._placements(handle, record.id)
            except self._nvml.NVMLError:
                continue  # this GPU has no profile of that index
            name = record.name.decode() if isinstance(record.name, bytes) else str(record.name)
            parts = parse_profile_name(name)
            starts = tuple(sorted(place.start for place in places))
            size = places[0].size if places else 0
            profile = Profile(
                parts.text,
                parts.gpcs,
                size,
                starts,
                record.instanceCount,
                parts.memory_gb,
                record.multiprocessorCount,
                record.id,
            )
            found.append((record, profile))
        return found

    def _placements(self, handle: Any, profile_id: int) -> list[Any]:
        """Return where a profile may lie: NVML is asked for the number first, then for the records."""
        count, ask = c_uint(), self._nvml.nvmlDeviceGetGpuInstancePossiblePlacements
        ask(handle, profile_id, None, byref(count))
        found = (self._nvml.c_nvmlGpuInstancePlacement_t * count.value)()
        ask(handle, profile_id, found, byref(count))
        return list(found[: count.value])

    def _gpu_instances(self, gpu: int, record: Any) -> list[Any]:
        """Return the instances of a profile on a GPU; the record says how many there can be."""
        count, found = c_uint(), (self._nvml.c_nvmlGpuInstance_t * max(1, record.instanceCount))()
        self._call(
            f"GPU {gpu}", "nvmlDeviceGetGpuInstances", self._handle(gpu), record.id, found, byref(count)
        )
        return list(found[: count.value])

    def sku(self, gpu: int) -> Sku:
        """Return what the GPU can be cut into, as NVML lists it."""
        profiles = [profile for _, profile in self._profiles(gpu)]
        if not profiles:
            raise refused(f"GPU {gpu}", "no MIG profiles", "is this a GPU with MIG, and is MIG mode on?")
        whole = max(profiles, key=lambda profile: (profile.gpcs, profile.size))
        name = self._call(f"GPU {gpu}", "nvmlDeviceGetName", self._handle(gpu))
        text = name.decode() if isinstance(name, bytes) else str(name)
        ordered = tuple(sorted(profiles, key=lambda p: (not p.base, p.gpcs, p.size, p.name)))
        return Sku(text, whole.gpcs, whole.size, ordered, (), "learned from NVML")

    def instances(self) -> list[Present]:
        """Return every GPU instance of the GPUs whose MIG mode is on."""
        found = []
        for gpu in range(self._call("NVML", "nvmlDeviceGetCount")):
            try:
                if not self.enabled(gpu):
                    continue
            except EngineError:
                continue  # a GPU without MIG
            for record, profile in self._profiles(gpu):
                for instance in self._gpu_instances(gpu, record):
                    known = self._call(f"GPU {gpu}", "nvmlGpuInstanceGetInfo", instance)
                    place = known.placement
                    found.append(Present(gpu, profile.name, known.id, place.start, place.size))
        return found

    def create(self, gpu: int, profile: str, start: int) -> int:
        """Create an instance at a start, with a compute instance that fills it."""
        what = f"creating {profile}@{start} on GPU {gpu}"
        match = next((pair for pair in self._profiles(gpu) if pair[1].name == profile), None)
        if match is None:
            raise refused(what, "no such profile on this GPU")
        place = self._nvml.c_nvmlGpuInstancePlacement_t(start, match[1].size)
        instance = self._call(
            what, "nvmlDeviceCreateGpuInstanceWithPlacement", self._handle(gpu), match[0].id, byref(place)
        )
        known = self._call(what, "nvmlGpuInstanceGetInfo", instance)
        compute = self._call(
            what, "nvmlGpuInstanceGetComputeInstanceProfileInfo", instance, self._whole(match[1].gpcs), 0
        )
        self._call(what, "nvmlGpuInstanceCreateComputeInstance", instance, compute.id)
        return int(known.id)

    def _whole(self, gpcs: int) -> int:
        """Return NVML's constant for a compute instance of so many slices."""
        return int(getattr(self._nvml, f"NVML_COMPUTE_INSTANCE_PROFILE_{gpcs}_SLICE"))

    def destroy(self, gpu: int, instance_id: int) -> None:
        """Destroy an instance with its compute instances."""
        what = f"destroying instance {instance_id} on GPU {gpu}"
        instance = self._call(what, "nvmlDeviceGetGpuInstanceById", self._handle(gpu), instance_id)
        for gpcs in _SIZES:
            for compute in self._computes(instance, gpcs):
                self._call(what, "nvmlComputeInstanceDestroy", compute)
        self._call(what, "nvmlGpuInstanceDestroy", instance)

    def _computes(self, instance: Any, gpcs: int) -> list[Any]:
        """Return the compute instances of a size in a GPU instance; none where that size cannot be."""
        count = c_uint()
        try:
            known = self._nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, self._whole(gpcs), 0)
            found = (self._nvml.c_nvmlComputeInstance_t * max(1, known.instanceCount))()
            self._nvml.nvmlGpuInstanceGetComputeInstances(instance, known.id, found, byref(count))
        except (self._nvml.NVMLError, AttributeError):
            return []
        return list(found[: count.value])
