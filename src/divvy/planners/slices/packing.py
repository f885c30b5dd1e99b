"""From numbers of slices to legal layouts on several GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from divvy.fleet.mig.layout import maximal_layouts, place
from divvy.fleet.mig.profile import Layout, Sku

#: Slices per size, ascending sizes: (1g, 2g, 3g, 4g, 7g) on a seven-slice part.
Counts = tuple[int, ...]


@lru_cache(maxsize=32)
def shapes(sku: Sku) -> tuple[Counts, ...]:
    """Return the maximal layouts of one GPU as numbers of slices per base profile, each once."""
    base = [profile.name for profile in sku.base_profiles]
    found = {
        tuple(Counter(p.profile for p in layout)[name] for name in base) for layout in maximal_layouts(sku)
    }
    return tuple(sorted(found, reverse=True))


def sizes_of(sku: Sku) -> tuple[int, ...]:
    """Return the compute slices of the base profiles, in the order of `Counts`."""
    return tuple(profile.gpcs for profile in sku.base_profiles)


def flatten(sku: Sku, counts: Counts) -> tuple[int, ...]:
    """Return the compute slices of every slice, ascending."""
    return tuple(size for size, count in zip(sizes_of(sku), counts, strict=True) for _ in range(count))


def slices_of(sku: Sku, layouts: tuple[Layout, ...]) -> tuple[int, ...]:
    """Return the compute slices of every slice of a fleet, ascending."""
    return tuple(sorted(sku.profile(p.profile).gpcs for layout in layouts for p in layout))


def lay_out(sku: Sku, shape: Counts) -> Layout:
    """Return a legal layout of one GPU with the given numbers of slices.

    Raises:
        ValueError: If there is none; callers pass parts of maximal layouts, for which there is one.
    """
    names = [profile.name for profile in sku.base_profiles]
    layout = place(sku, dict(zip(names, shape, strict=True)))
    if layout is None:
        raise ValueError(f"{shape} fits no {sku.name}")
    return layout


def split(sku: Sku, wanted: Counts, gpus: int) -> tuple[Counts, ...] | None:
    """Return what each GPU gets so that all wanted slices have a legal place, or None if they do not fit.

    An exact search: each GPU takes part of a maximal layout; states that failed are remembered.
    """
    options = shapes(sku)
    failed: set[tuple[Counts, int]] = set()

    def fill(rest: Counts, left: int) -> tuple[Counts, ...] | None:
        if not any(rest):
            return ((0,) * len(rest),) * left
        if left == 0 or (rest, left) in failed:
            return None
        takes = {tuple(min(a, b) for a, b in zip(rest, option, strict=True)) for option in options}
        for take in sorted(takes, key=lambda t: tuple(-x for x in reversed(t))):
            if not any(take):
                continue
            after = fill(tuple(a - b for a, b in zip(rest, take, strict=True)), left - 1)
            if after is not None:
                return (take, *after)
        failed.add((rest, left))
        return None

    return fill(wanted, gpus)


def fit(sku: Sku, wanted: Counts, gpus: int) -> tuple[tuple[Counts, ...], Counts]:
    """Return what each GPU gets and what had to be dropped: small slices are dropped first, one at a time."""
    sizes = sizes_of(sku)
    rest, dropped = list(wanted), [0] * len(wanted)
    most = [max(option[i] for option in shapes(sku)) * gpus for i in range(len(wanted))]
    for i, limit in enumerate(most):
        dropped[i] = max(0, rest[i] - limit)
        rest[i] -= dropped[i]
    whole = sku.compute_slices * gpus
    while True:
        over = sum(a * b for a, b in zip(rest, sizes, strict=True)) > whole
        answer = None if over else split(sku, tuple(rest), gpus)
        if answer is not None:
            return answer, tuple(dropped)
        smallest = next(i for i, count in enumerate(rest) if count)
        rest[smallest] -= 1
        dropped[smallest] += 1


def describe(sku: Sku, per_gpu: tuple[Counts, ...]) -> str:
    """Return layouts as people write them: ``2 x (4+2+1), 1 x (7)``."""
    sizes = sizes_of(sku)
    texts = Counter(
        "+".join(
            str(size)
            for size, count in sorted(zip(sizes, shape, strict=True), reverse=True)
            for _ in range(count)
        )
        or "empty"
        for shape in per_gpu
    )
    return ", ".join(f"{count} x ({text})" for text, count in texts.items())


def as_counts(sku: Sku, sizes: Mapping[int, int]) -> Counts:
    """Return numbers of slices by compute slices in the order of `Counts`."""
    return tuple(sizes.get(size, 0) for size in sizes_of(sku))
