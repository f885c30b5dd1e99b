"""Kubernetes node labels of GPU feature discovery, and the metrics of DCGM exporter, as far as MIG goes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from divvy.errors import Fault, InputError
from divvy.fleet.mig.parse.lines import Faults
from divvy.fleet.mig.profile import parse_profile_name
from divvy.units import parse_json

_SLICE: Final = re.compile(r"nvidia\.com/mig-(\d+g\.\d+gb(?:\.[a-z.]+)?)\.count", re.ASCII)
_METRIC: Final = re.compile(
    r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(NaN|[+-]?Inf|[-+]?[0-9.]+(?:[eE][-+]?\d+)?)(?:\s+\d+)?"
)
_NUMBER: Final = re.compile(r"\d{1,9}", re.ASCII)
_LABEL: Final = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"\s*,?\s*')


@dataclass(frozen=True, slots=True)
class SliceLabels:
    """What the labels of a node say about one profile; -1 where a label is absent."""

    profile: str
    count: int
    memory_mib: int
    multiprocessors: int


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """What the labels of a node say about its GPUs.

    Attributes:
        product: GPU product name.
        gpus: Number of GPUs.
        capable: Whether the GPUs can be cut.
        strategy: ``none``, ``single`` or ``mixed``.
        config: The applied mig-parted configuration.
        config_state: ``success``, ``pending``, ``failed`` ...; empty where absent.
        slices: By profile (strategy mixed).
    """

    product: str
    gpus: int
    capable: bool
    strategy: str
    config: str
    config_state: str
    slices: tuple[SliceLabels, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One DCGM metric. `profile` and `instance` are empty and -1 where the sample is of a whole GPU."""

    metric: str
    gpu: int
    uuid: str
    profile: str
    instance: int
    value: float
    labels: Mapping[str, str]


def parse_node_labels(text: str, path: str = "") -> NodeLabels:
    """Return what a node's labels (a JSON object, or a whole Node) say about MIG.

    Raises:
        InputError: If it is no JSON object of labels, has no GPU label, or a value is not of its kind.
    """
    body = "\n".join("" if line.startswith("#") else line for line in text.splitlines())
    try:
        document = parse_json(body)
    except ValueError as error:
        raise InputError.one("k8s-labels", f"not JSON: {error}", path=path) from error
    labels = document
    if isinstance(document, dict) and isinstance(document.get("metadata"), dict):
        labels = document["metadata"].get("labels")
    if not isinstance(labels, dict) or not any(str(key).startswith("nvidia.com/") for key in labels):
        raise InputError.one("k8s-labels", "no nvidia.com/ labels in this document", path=path)
    faults: list[Fault] = []

    def number(key: str) -> int:
        value = labels.get(key)
        if value is None:
            return -1
        if _NUMBER.fullmatch(str(value)) is None:
            faults.append(Fault("k8s-labels", f"{path}:{key}", f"{value!r} is not a number"))
            return -1
        return int(value)

    names = sorted({m[1] for key in labels if (m := _SLICE.fullmatch(str(key)))})
    slices = tuple(
        SliceLabels(
            parse_profile_name(name.replace("gb.", "gb+", 1), path=path).text,
            number(f"nvidia.com/mig-{name}.count"),
            number(f"nvidia.com/mig-{name}.memory"),
            number(f"nvidia.com/mig-{name}.multiprocessors"),
        )
        for name in names
    )
    gpus = number("nvidia.com/gpu.count")
    if faults:
        raise InputError(f"{path or 'the labels'} have faults", faults)
    return NodeLabels(
        _text(labels, "gpu.product"),
        gpus,
        _text(labels, "mig.capable") == "true",
        _text(labels, "mig.strategy"),
        _text(labels, "mig.config"),
        _text(labels, "mig.config.state"),
        slices,
    )


def _text(labels: Mapping[str, Any], key: str) -> str:
    return str(labels.get(f"nvidia.com/{key}", ""))


def parse_dcgm(text: str, path: str = "") -> tuple[Sample, ...]:
    """Return the samples of a DCGM exporter page.

    Raises:
        InputError: With every line that is not a sample or a comment.
    """
    faults = Faults(path, "DCGM exporter metrics")
    samples: list[Sample] = []
    for number, line in enumerate(text.splitlines(), start=1):
        body = line.strip()
        if not body or body.startswith("#"):
            continue
        match = _METRIC.fullmatch(body)
        labels = dict(_LABEL.findall(match[2] or "")) if match is not None else {}
        if match is None or _LABEL.sub("", match[2] or "").strip():
            faults.unread(number, line)
            continue
        gpu, instance = labels.get("gpu", ""), labels.get("GPU_I_ID", "")
        if _NUMBER.fullmatch(gpu) is None:
            faults.add(number, "the sample has no label gpu with a number")
            continue
        samples.append(
            Sample(
                match[1],
                int(gpu),
                labels.get("UUID", ""),
                labels.get("GPU_I_PROFILE", ""),
                int(instance) if _NUMBER.fullmatch(instance) else -1,
                float(match[3]),
                labels,
            )
        )
    faults.finish(empty=not samples)
    return tuple(samples)
