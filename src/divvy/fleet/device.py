"""Device models and their weights: what one device of a kind is worth in charge."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from divvy.fleet.mig.skus import find_sku


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """A kind of device.

    Attributes:
        name: Name as users write it, such as ``H100-80GB``.
        weight: Charge per device-millisecond, a positive integer. The default price list uses dense bf16
            (V100: fp16) tensor TFLOPS, so that one H100 hour costs 3.17 A100 hours.
        memory_bytes: Device memory; 0 where it means nothing (CPU slots).
        source: Where the weight comes from.
    """

    name: str
    weight: int
    memory_bytes: int = 0
    source: str = ""


_GB: Final = 10**9
_DATASHEET: Final = "dense bf16 tensor TFLOPS, NVIDIA data sheet"

GENERIC: Final = DeviceModel("gpu", 1, 0, "one kind of device: every weight is 1")
CPU_SLOT: Final = DeviceModel("cpu-slot", 1, 0, "a CPU slot of the local engine")

#: The default price list. A fleet may override any weight in its own list.
DEVICE_MODELS: Final[dict[str, DeviceModel]] = {
    model.name: model
    for model in (
        GENERIC,
        CPU_SLOT,
        DeviceModel("V100-32GB", 125, 32 * _GB, "fp16 tensor TFLOPS, NVIDIA data sheet (no bf16)"),
        DeviceModel("A30-24GB", 165, 24 * _GB, _DATASHEET),
        DeviceModel("A100-40GB", 312, 40 * _GB, _DATASHEET),
        DeviceModel("A100-80GB", 312, 80 * _GB, _DATASHEET),
        DeviceModel("L40S-48GB", 362, 48 * _GB, _DATASHEET),
        DeviceModel("H100-80GB", 989, 80 * _GB, _DATASHEET),
        DeviceModel("H200-141GB", 989, 141 * _GB, _DATASHEET),
        DeviceModel("B200-180GB", 2250, 180 * _GB, _DATASHEET),
    )
}


#: A slice of a device as a device of its own: ``A100-80GB.3g.40gb``.
_SLICE: Final = re.compile(r"(?P<whole>.+)\.(?P<gpcs>[1-7])g(?:\.\d+gb)?", re.ASCII)


def weight_of(model: str) -> int:
    """Return the weight of a model by the default price list; an unknown model counts as generic.

    A slice has its compute slices' part of the whole device, rounded to a whole number, so that work on it is
    charged by slice.
    """
    known = DEVICE_MODELS.get(model)
    if known is not None:
        return known.weight
    cut = _SLICE.fullmatch(model)
    if cut is None or cut["whole"] not in DEVICE_MODELS:
        return GENERIC.weight
    slices = find_sku(cut["whole"]).compute_slices
    return max(1, round(DEVICE_MODELS[cut["whole"]].weight * int(cut["gpcs"]) / slices))
