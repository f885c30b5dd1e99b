"""What a replica says about the slice it runs on, and how it finds out."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from divvy.errors import InputError, UnavailableError
from divvy.fleet.mig.parse.devices import parse_list, parse_mig_uuid
from divvy.fleet.mig.profile import parse_profile_name

#: The MIG profiles of a node's devices in their order, comma-separated, where nobody can be asked.
VARIABLE: Final = "DIVVY_SLICES"
_SECONDS: Final = 20


def find_slice(environment: Mapping[str, str] | None = None, device: str | None = None) -> str:
    """Return the MIG profile that this replica runs on, such as ``3g.40gb``.

    Args:
        environment: Variables; those of the process where None. `VARIABLE` lists the node's slices; else
            the MIG device in CUDA_VISIBLE_DEVICES is looked up in ``nvidia-smi -L``.
        device: Index of the device on the node; Ray is asked where None.

    Raises:
        UnavailableError: If nothing says.
    """
    known = os.environ if environment is None else environment
    listed = [part.strip() for part in known.get(VARIABLE, "").split(",") if part.strip()]
    visible = known.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    if listed:
        index = _device() if device is None else device
        if index.isdecimal() and int(index) < len(listed):
            return listed[int(index)]
    if visible.startswith("MIG-"):
        return _ask_driver(visible)
    raise UnavailableError.one(
        "rayserve-slice",
        "nothing says which slice this replica runs on",
        fix=f'give SliceReplica its profile, or start the node with {VARIABLE}="4g.40gb,2g.20gb,1g.10gb"',
    )


def _device() -> str:
    """Return the index of the first device that Ray has given to this replica; empty for none."""
    ids = import_module("ray").get_gpu_ids()
    return str(ids[0]) if ids else ""


def _ask_driver(uuid: str) -> str:
    try:
        text = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError.one("rayserve-slice", f"nvidia-smi -L: {error}") from error
    wanted = parse_mig_uuid(uuid)
    for gpu in parse_list(text, "nvidia-smi -L"):
        for mig in gpu.devices:
            if mig.uuid == wanted:
                return mig.profile
    raise UnavailableError.one("rayserve-slice", f"nvidia-smi -L does not list {uuid}")


class SliceReplica:
    """Base of a deployment's class: publishes the slice and its size for `ElsaRouter`.

    Args:
        profile: MIG profile, such as ``3g.40gb``; found out where None.

    Raises:
        InputError: If the profile is none.
        UnavailableError: If it cannot be found out.
    """

    def __init__(self, profile: str | None = None) -> None:
        self.slice_profile = find_slice() if profile is None else profile
        self.slice_gpcs = parse_profile_name(self.slice_profile, path="profile").gpcs

    def record_routing_stats(self) -> dict[str, Any]:
        """Return what Ray Serve passes on to the router."""
        return {"divvy_slice": self.slice_profile, "divvy_gpcs": self.slice_gpcs}


def gpcs_of(stats: Mapping[str, Any] | None) -> int | None:
    """Return the compute slices that a replica has published; None where it has not (yet).

    Raises:
        InputError: If what it published is no size.
    """
    if not stats or "divvy_gpcs" not in stats:
        return None
    value = stats["divvy_gpcs"]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError.one("rayserve-stats", f"divvy_gpcs is {value!r}", allowed="a whole number from 1 on")
    return value
