"""The table of SKUs: one entry per kind of GPU, each with its source; numbers come from drivers."""

from __future__ import annotations

import re
from typing import Final

from divvy.errors import NotFoundError
from divvy.fleet.mig.profile import Profile, Sku

_GUIDE: Final = "NVIDIA MIG User Guide, supported profiles"
_PARTED: Final = "NVIDIA mig-parted, deployments/systemd/config-default.yaml"


def _seven(
    name: str, memory: tuple[int, int, int, int], sms: tuple[int, ...], source: str, *aliases: str
) -> Sku:
    """Return a seven-slice SKU.

    Args:
        name: The SKU's name.
        memory: GB of a 1g, of a 2g (and of the double-memory 1g), of a 3g and a 4g, of the whole.
        sms: Of 1g, double-memory 1g, 2g, 3g, 4g, 7g; 0 where no source says; empty where none says anything.
        source: Where the facts come from.
        *aliases: Other names, lower case.
    """
    one, double, half, whole = memory
    small, broad, two, three, four, seven = sms or (0,) * 6
    every = tuple(range(7))
    profiles = (
        Profile(f"1g.{one}gb", 1, 1, every, 7, one, small),
        Profile(f"2g.{double}gb", 2, 2, (0, 2, 4), 3, double, two),
        Profile(f"3g.{half}gb", 3, 4, (0, 4), 2, half, three),
        Profile(f"4g.{half}gb", 4, 4, (0,), 1, half, four),
        Profile(f"7g.{whole}gb", 7, 8, (0,), 1, whole, seven),
        Profile(f"1g.{one}gb+me", 1, 1, every, 1, one, small),
        Profile(f"1g.{double}gb", 1, 2, (0, 2, 4, 6), 4, double, broad),
    )
    return Sku(name, 7, 8, profiles, aliases, source)


def _four(
    name: str,
    memory: tuple[int, int, int],
    sms: tuple[int, int, int],
    attributes: tuple[tuple[int, str, int], ...],
    source: str,
    *aliases: str,
) -> Sku:
    """Return a four-slice SKU; `attributes` lists variants as (gpcs, attribute, limit)."""
    shapes = {1: ((0, 1, 2, 3), 4), 2: ((0, 2), 2), 4: ((0,), 1)}
    gb = dict(zip((1, 2, 4), memory, strict=True))
    cores = dict(zip((1, 2, 4), sms, strict=True))
    variants = [(gpcs, "", limit) for gpcs, (_, limit) in shapes.items()] + list(attributes)
    profiles = tuple(
        Profile(f"{g}g.{gb[g]}gb{attribute}", g, g, shapes[g][0], limit, gb[g], cores[g])
        for g, attribute, limit in variants
    )
    return Sku(name, 4, 4, profiles, aliases, source)


_A100_SMS: Final = (14, 14, 28, 42, 56, 98)

#: A new SKU is one more entry.
SKUS: Final[dict[str, Sku]] = {
    sku.name: sku
    for sku in (
        _four(
            "A30-24GB",
            (6, 12, 24),
            (14, 28, 56),
            ((1, "+me", 1), (2, "+me", 1)),
            f"{_GUIDE}; nvidia-smi mig -lgip and -lgipp of an A30",
            "a30",
        ),
        _seven(
            "A100-40GB",
            (5, 10, 20, 40),
            _A100_SMS,
            f"{_GUIDE}; -lgip of an A100-PCIE-40GB",
            "a100-sxm4-40gb",
            "a100-pcie-40gb",
            "a800-40gb",
        ),
        _seven(
            "A100-80GB",
            (10, 20, 40, 80),
            _A100_SMS,
            f"{_GUIDE}; -lgip of an A100-80GB",
            "a100-sxm4-80gb",
            "a100 80gb pcie",
            "a800-80gb",
        ),
        _seven(
            "H100-80GB",
            (10, 20, 40, 80),
            (16, 0, 32, 60, 0, 132),
            f"{_GUIDE}; SMs of 1g, 2g, 3g from the node labels of the GPU operator's manual (H100 80GB HBM3)",
            "h100",
            "h100 80gb hbm3",
            "h100 pcie",
            "h800-80gb",
        ),
        _seven(
            "H100-NVL-94GB",
            (12, 24, 47, 94),
            (16, 26, 32, 60, 64, 132),
            f"{_GUIDE}; -lgip of an H100 NVL, driver 560.35.03",
            "h100 nvl",
            "h100-94gb",
        ),
        _seven(
            "GH200-96GB", (12, 24, 48, 96), (), f"{_PARTED}; {_GUIDE}", "gh200", "gh200 480gb", "h100-96gb"
        ),
        _seven("GH200-144GB", (18, 36, 72, 144), (), f"{_PARTED} (GH200 144G HBM3e)", "gh200 144g hbm3e"),
        _seven(
            "H200-141GB",
            (18, 35, 71, 141),
            (16, 0, 32, 60, 64, 132),
            f"{_GUIDE}; -lgip of an H200",
            "h200",
            "h200 nvl",
        ),
        _seven("B200-180GB", (23, 45, 90, 180), (), f"{_GUIDE}, table of B200", "b200"),
        _four(
            "RTX-PRO-6000-96GB",
            (24, 48, 96),
            (46, 94, 188),
            (
                (1, "+me", 1),
                (1, "+gfx", 4),
                (1, "+me.all", 1),
                (1, "-me", 4),
                (2, "+gfx", 2),
                (2, "+me.all", 1),
                (2, "-me", 2),
                (4, "+gfx", 1),
            ),
            f"{_GUIDE}, table of RTX PRO 6000; -lgip of the Server Edition",
            "rtx pro 6000",
            "rtx pro 6000 blackwell server edition",
            "rtx pro 6000 blackwell workstation edition",
            "rtx pro 6000 blackwell max-q workstation edition",
        ),
    )
}


def _key(text: str) -> str:
    """Return a name without vendor, case, spaces, dashes and the unit, so that spellings meet."""
    return re.sub(r"nvidia|gb\b|[\s_\-]", "", text.lower())


_BY_KEY: Final = {_key(name): sku for sku in SKUS.values() for name in (sku.name, *sku.aliases)} | {
    _key(short): SKUS[name]
    for short, name in (
        ("A100-40", "A100-40GB"),
        ("A100-80", "A100-80GB"),
        ("H200-141", "H200-141GB"),
        ("RTX-PRO-6000", "RTX-PRO-6000-96GB"),
        ("H100 NVL", "H100-NVL-94GB"),
    )
}


def find_sku(text: str) -> Sku:
    """Return the SKU that a name means: ``A100-80GB``, ``a100-80``, or a product name as drivers print it.

    Raises:
        NotFoundError: If no SKU has that name; the fault lists all of them.
    """
    sku = _BY_KEY.get(_key(text))
    if sku is None:
        raise NotFoundError.one(
            "mig-unknown-sku",
            f"no SKU {text!r}",
            allowed=", ".join(SKUS),
            fix="or learn it: --table FILE with the output of nvidia-smi mig -lgip and -lgipp",
        )
    return sku
