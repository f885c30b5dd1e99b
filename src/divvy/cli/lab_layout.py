"""Layouts as people write them for the lab: a plan's file, or sizes such as ``4+2+1,7``."""

from __future__ import annotations

from pathlib import Path

from divvy.cli.slice_apply import read_plan
from divvy.cli.slice_inputs import load_sku, read_file
from divvy.errors import InputError
from divvy.fleet.mig.layout import place
from divvy.fleet.mig.profile import Layout, Sku

ALLOWED = "the JSON of divvy slices plan, or sizes: 4+2+1,7 is a GPU with 4g, 2g, 1g and one with 7g"


def read_layout(text: str, sku: str) -> tuple[Sku, tuple[Layout, ...]]:
    """Return the SKU and a legal layout per GPU.

    Args:
        text: Path of a plan, or sizes: GPUs by comma, slices by plus.
        sku: Name of the SKU that sizes are cut from; a plan names its own.

    Raises:
        InputError: If it is neither, or the sizes do not fit on one GPU.
        NotFoundError: If it looks like a file and there is none.
    """
    if not set(text) <= set("0123456789+,g ") or not text.strip():
        return read_plan(read_file(Path(text), "--layout"), text)
    kind = load_sku(sku)
    return kind, tuple(_place(kind, part, text) for part in text.split(","))


def _place(sku: Sku, part: str, text: str) -> Layout:
    """Return the layout of one GPU.

    Raises:
        InputError: If a size is none of the SKU's, or they do not fit together.
    """
    wanted: dict[str, int] = {}
    for size in part.split("+"):
        digits = size.strip().removesuffix("g")
        if not digits.isdecimal():
            raise InputError.one("lab-layout", f"{size!r} in {text!r}", path="--layout", allowed=ALLOWED)
        name = sku.by_gpcs(int(digits)).name
        wanted[name] = wanted.get(name, 0) + 1
    layout = place(sku, wanted)
    if layout is None:
        raise InputError.one(
            "lab-layout",
            f"{part!r} does not fit on one {sku.name}",
            path="--layout",
            allowed="what divvy slices layouts lists, or a part of it",
        )
    return layout
