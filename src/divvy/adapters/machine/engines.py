"""What jobs, queries and transfers can run on here: GPUs, MIG, Slurm, Ray, NIXL; and a browser."""

from __future__ import annotations

import shutil
import subprocess
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any, Final

from divvy.adapters.machine.check import Check, State

_SECONDS: Final = 5.0


def gpus() -> Check:
    """Look at NVIDIA GPUs and their MIG mode, through NVML."""
    need = "GPUs as devices, their utilisation, MIG"
    slots = "without GPUs the local engine offers CPU slots, and slices are planned but not cut"
    if find_spec("pynvml") is None:
        return Check(
            "nvml",
            State.MISSING,
            "the package nvidia-ml-py is not installed",
            need,
            "pip install 'divvy-gpu[nvml]'",
        )
    nvml: Any = import_module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Check("nvml", State.MISSING, f"no NVIDIA driver answers ({error})", need, slots)
    try:
        count = int(nvml.nvmlDeviceGetCount())
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        cut = sum(_mig(nvml, handle) for handle in handles)
        names = sorted({str(nvml.nvmlDeviceGetName(handle)) for handle in handles})
    finally:
        nvml.nvmlShutdown()
    if not count:
        return Check("nvml", State.MISSING, "a driver, but no GPU", need, slots)
    return Check("nvml", State.OK, f"{count} GPUs ({', '.join(names)}), MIG enabled on {cut}", need)


def _mig(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:
        return False  # a model that cannot be cut


def slurm() -> Check:
    """Look whether Slurm's commands are here and a controller answers."""
    need = "`divvy up --engine slurm`; `divvy audit` reads its dumps anywhere"
    if shutil.which("sinfo") is None:
        return Check(
            "slurm",
            State.MISSING,
            "no sinfo on the PATH",
            need,
            "install Slurm's client commands where you need it",
        )
    version = _said(["sinfo", "--version"]) or "version unknown"
    answers = _said(["scontrol", "ping"])
    if "UP" in answers:
        return Check("slurm", State.OK, f"{version}; {answers.splitlines()[0]}", need)
    return Check(
        "slurm", State.WARN, f"{version}; no controller answers", need, "start slurmctld, or set SLURM_CONF"
    )


def package(name: str, modules: tuple[str, ...], need: str, extra: str) -> Check:
    """Look whether a package is installed, without importing it."""
    found = next((module for module in modules if find_spec(module) is not None), None)
    if found is None:
        return Check(name, State.MISSING, f"{modules[0]} is not installed", need, extra)
    try:
        version = metadata.version(found.replace("_", "-"))
    except metadata.PackageNotFoundError:
        version = "version unknown"
    return Check(name, State.OK, f"{found} {version}", need)


def ray() -> Check:
    """Look for Ray."""
    return package("ray", ("ray",), "Ray Serve behind unequal slices", "pip install 'divvy-gpu[ray]'")


def nixl() -> Check:
    """Look for NIXL."""
    return package(
        "nixl", ("nixl", "nixl_cu12"), "transfers for real", "pip install --no-deps 'nixl-cu12>=1.5'"
    )


def browser() -> Check:
    """Look for a Chromium."""
    need = "tests and benchmarks of the page; any browser shows the page"
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return Check("browser", State.OK, path, need)
    return Check(
        "browser", State.MISSING, "no Chromium on the PATH", need, "Debian: apt-get install chromium"
    )


def _said(command: list[str]) -> str:
    """Return what a command prints, empty where it fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
