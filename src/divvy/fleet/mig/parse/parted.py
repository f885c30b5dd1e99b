"""mig-parted configurations: plain YAML, or the ConfigMap of the GPU operator that wraps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from divvy.errors import Fault, InputError
from divvy.fleet.mig.profile import parse_profile_name


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """What one entry of a configuration asks of some GPUs.

    Attributes:
        devices: GPU indices, or None for all.
        device_filter: PCI device ids to which it is limited; empty for all.
        enabled: Whether MIG mode is to be on.
        slices: Profile name to count.
    """

    devices: tuple[int, ...] | None
    device_filter: tuple[str, ...]
    enabled: bool
    slices: dict[str, int]


def parse_parted(text: str, path: str = "") -> dict[str, tuple[DeviceConfig, ...]]:
    """Return the named configurations of a mig-parted file.

    Raises:
        InputError: If it is no YAML, no mig-parted file, or any entry is wrong; with every fault.
    """
    document = _unwrap(_load(text, path), path)
    configs = document.get("mig-configs")
    if document.get("version") != "v1" or not isinstance(configs, Mapping) or not configs:
        raise InputError.one(
            "mig-parted-shape",
            "not a mig-parted configuration",
            path=path,
            allowed="version: v1 and a mapping mig-configs",
        )
    faults: list[Fault] = []
    answer = {
        str(name): tuple(_entry(entry, f"mig-configs.{name}[{i}]", faults) for i, entry in enumerate(entries))
        for name, entries in configs.items()
        if _is_list(entries, f"mig-configs.{name}", faults)
    }
    if faults:
        raise InputError(f"{path or 'the mig-parted configuration'} has faults", faults)
    return answer


class _Once(yaml.SafeLoader):
    """Reads YAML; a key that is there twice is a fault, not the last one's victory."""


def _mapping(loader: _Once, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    for index, key in enumerate(keys):
        if key in keys[:index]:
            raise yaml.constructor.ConstructorError(
                problem=f"{key!r} is there twice", problem_mark=node.value[index][0].start_mark
            )
    return loader.construct_mapping(node, deep=True)


_Once.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _load(text: str, path: str) -> Any:
    """Return what a YAML text says.

    Raises:
        InputError: If it is no YAML, or names something twice.
    """
    try:
        return yaml.load(text, _Once)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = path if mark is None else f"{path}:{mark.line + 1}"
        why = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise InputError.one("mig-parted-yaml", f"not YAML: {why}", path=place) from error


def _unwrap(document: Any, path: str) -> Mapping[str, Any]:
    if isinstance(document, Mapping) and document.get("kind") == "ConfigMap":
        data = document.get("data")
        inner = data.get("config.yaml") if isinstance(data, Mapping) else None
        if not isinstance(inner, str):
            raise InputError.one("mig-parted-shape", "the ConfigMap has no data.config.yaml", path=path)
        document = _load(inner, f"{path}: data.config.yaml")
    if not isinstance(document, Mapping):
        raise InputError.one("mig-parted-shape", "not a mapping", path=path)
    return document


def _is_list(entries: Any, path: str, faults: list[Fault]) -> bool:
    if isinstance(entries, list):
        return True
    faults.append(Fault("mig-parted-shape", path, "must be a list of device entries"))
    return False


def _entry(entry: Any, path: str, faults: list[Fault]) -> DeviceConfig:
    if not isinstance(entry, Mapping):
        faults.append(Fault("mig-parted-shape", path, "must be a mapping"))
        return DeviceConfig(None, (), False, {})
    enabled = entry.get("mig-enabled")
    if not isinstance(enabled, bool):
        faults.append(Fault("mig-parted-shape", f"{path}.mig-enabled", f"{enabled!r} is not true or false"))
    devices = entry.get("devices")
    indices: tuple[int, ...] | None = None
    if isinstance(devices, list) and all(isinstance(d, int) and not isinstance(d, bool) for d in devices):
        indices = tuple(devices)
    elif devices != "all":
        faults.append(
            Fault("mig-parted-shape", f"{path}.devices", f"{devices!r}", 'a list of indices or "all"')
        )
    wanted = entry.get("device-filter", [])
    filters = (
        (wanted,)
        if isinstance(wanted, str)
        else tuple(str(item) for item in (wanted if isinstance(wanted, list) else []))
    )
    slices: dict[str, int] = {}
    devices_of = entry.get("mig-devices") or {}
    if not isinstance(devices_of, Mapping):
        faults.append(Fault("mig-parted-shape", f"{path}.mig-devices", "must be a mapping"))
        devices_of = {}
    for name, count in devices_of.items():
        where = f"{path}.mig-devices.{name}"
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            faults.append(Fault("mig-parted-count", where, f"{count!r} is not a number of slices"))
            continue
        try:
            slices[parse_profile_name(str(name), path=where).text] = count
        except InputError as error:
            faults.extend(error.faults)
    if enabled is False and slices:
        faults.append(Fault("mig-parted-shape", path, "mig-devices while mig-enabled is false"))
    return DeviceConfig(indices, filters, bool(enabled), slices)
