"""Legal layouts of one GPU: the rules, all maximal ones, placing a wish list, greedy drivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from divvy.errors import Fault, InputError
from divvy.fleet.mig.profile import Layout, Placement, Profile, Sku


def faults(sku: Sku, layout: Iterable[Placement]) -> list[Fault]:
    """Return every rule that a set of slices on one GPU breaks; empty means legal."""
    found: list[Fault] = []
    taken: dict[int, Placement] = {}
    counts: Counter[str] = Counter()
    compute = 0
    for placement in sorted(layout):
        where = f"{placement.profile}@{placement.start}"
        profile = next((p for p in sku.profiles if p.name == placement.profile), None)
        if profile is None:
            found.append(Fault("mig-unknown-profile", where, f"{sku.name} has no such profile"))
            continue
        if placement.size != profile.size:
            found.append(
                Fault("mig-size", where, f"size {placement.size} is not the profile's", str(profile.size))
            )
        if placement.start not in profile.starts:
            allowed = ", ".join(str(start) for start in profile.starts)
            found.append(Fault("mig-start", where, f"may not begin at {placement.start}", allowed))
        for cell in range(placement.start, placement.start + profile.size):
            if cell in taken:
                other = taken[cell]
                text = f"memory slice {cell} is taken by {other.profile}@{other.start}"
                found.append(Fault("mig-overlap", where, text))
            taken[cell] = placement
        counts[profile.name] += 1
        if counts[profile.name] == profile.limit + 1:
            found.append(Fault("mig-limit", where, f"at most {profile.limit} of {profile.name} on one GPU"))
        compute += profile.gpcs
    if compute > sku.compute_slices:
        text = f"{compute} compute slices asked, {sku.compute_slices} are there"
        found.append(Fault("mig-compute", sku.name, text))
    return found


def check(sku: Sku, layout: Iterable[Placement]) -> Layout:
    """Return the layout by start, if it is legal.

    Raises:
        InputError: With every rule that is broken.
    """
    ordered = tuple(sorted(layout))
    broken = faults(sku, ordered)
    if broken:
        raise InputError(f"this layout is not legal on {sku.name}", broken)
    return ordered


def _options(sku: Sku, profiles: Sequence[Profile]) -> list[tuple[Placement, int]]:
    return [
        (Placement(start, profile.size, profile.name), profile.gpcs)
        for profile in profiles
        for start in profile.starts
        if start + profile.size <= sku.memory_slices
    ]


@lru_cache(maxsize=64)
def all_layouts(sku: Sku, profiles: tuple[Profile, ...] | None = None) -> tuple[Layout, ...]:
    """Return every legal layout of one GPU, partial ones and the empty one included, sorted.

    Args:
        sku: The GPU.
        profiles: The profiles to use; the base profiles where None.
    """
    chosen = sku.base_profiles if profiles is None else profiles
    limits = {profile.name: profile.limit for profile in chosen}
    options = sorted(_options(sku, chosen))
    found: list[Layout] = []

    def extend(index: int, mask: int, compute: int, layout: Layout) -> None:
        found.append(layout)
        for position in range(index, len(options)):
            placement, gpcs = options[position]
            if mask & placement.mask or compute + gpcs > sku.compute_slices:
                continue
            if sum(1 for p in layout if p.profile == placement.profile) >= limits[placement.profile]:
                continue
            extend(position + 1, mask | placement.mask, compute + gpcs, (*layout, placement))

    extend(0, 0, 0, ())
    return tuple(sorted(found))


@lru_cache(maxsize=64)
def maximal_layouts(sku: Sku, profiles: tuple[Profile, ...] | None = None) -> tuple[Layout, ...]:
    """Return the legal layouts to which no slice of the given profiles can be added, largest slices first."""
    chosen = sku.base_profiles if profiles is None else profiles
    options = _options(sku, chosen)
    limits = {profile.name: profile.limit for profile in chosen}
    sizes = {profile.name: profile.gpcs for profile in chosen}

    def grows(layout: Layout) -> bool:
        mask = sum(placement.mask for placement in layout)
        free = sku.compute_slices - sum(sizes[placement.profile] for placement in layout)
        counts = Counter(placement.profile for placement in layout)
        return any(
            not mask & placement.mask
            and gpcs <= free
            and counts[placement.profile] < limits[placement.profile]
            for placement, gpcs in options
        )

    found = [layout for layout in all_layouts(sku, profiles) if not grows(layout)]
    return tuple(sorted(found, key=lambda lay: (sorted(-sizes[p.profile] for p in lay), lay)))


def multiset(layout: Iterable[Placement]) -> tuple[tuple[str, int], ...]:
    """Return how many slices of each profile a layout has, by name: where they lie is left out."""
    return tuple(sorted(Counter(placement.profile for placement in layout).items()))


def place(sku: Sku, wanted: Mapping[str, int], kept: Iterable[Placement] = ()) -> Layout | None:
    """Return a legal layout of one GPU with the wanted slices, or None if there is none.

    Large slices are placed first; among starts the lowest that leads to a full answer is taken, so the same
    wish gives the same layout.

    Args:
        sku: The GPU.
        wanted: Profile name to number of slices.
        kept: Slices that are there already and stay.
    """
    fixed = tuple(kept)
    wishes = [sku.profile(name) for name, count in wanted.items() for _ in range(count)]
    wishes.sort(key=lambda profile: (-profile.size, -profile.gpcs, len(profile.starts), profile.name))
    compute = sum(p.gpcs for p in wishes) + sum(sku.profile(p.profile).gpcs for p in fixed)
    if compute > sku.compute_slices:
        return None
    counts = Counter(p.name for p in wishes) + Counter(p.profile for p in fixed)
    if any(counts[name] > sku.profile(name).limit for name in counts):
        return None

    def fill(index: int, mask: int, least: int, layout: Layout) -> Layout | None:
        if index == len(wishes):
            return layout
        profile = wishes[index]
        same = index > 0 and wishes[index - 1] == profile
        for start in profile.starts:
            placement = Placement(start, profile.size, profile.name)
            if mask & placement.mask or (same and start < least):
                continue
            answer = fill(index + 1, mask | placement.mask, start + 1, (*layout, placement))
            if answer is not None:
                return answer
        return None

    placed = fill(0, sum(p.mask for p in fixed), 0, fixed)
    return None if placed is None else tuple(sorted(placed))


def greedy_start(sku: Sku, profile: Profile, taken: Iterable[Placement]) -> int | None:
    """Return where a driver puts a slice when no start is given, or None where it finds no room.

    Drivers take the last free start: a first 1g lands on memory slice 6 (recorded outputs of the MIG User
    Guide), which is why ``-cgi 19,19,14,9`` fails although ``9,14,19,19`` fits.
    """
    present = tuple(taken)
    mask = sum(placement.mask for placement in present)
    compute = sum(sku.profile(placement.profile).gpcs for placement in present)
    same = sum(1 for placement in present if placement.profile == profile.name)
    if compute + profile.gpcs > sku.compute_slices or same >= profile.limit:
        return None
    for start in reversed(profile.starts):
        if not mask & Placement(start, profile.size, profile.name).mask:
            return start
    return None


def free_instances(sku: Sku, profile: Profile, taken: Iterable[Placement]) -> int:
    """Return how many more slices of a profile fit beside those that are there (``Instances Free``)."""
    kept = tuple(taken)
    most = 0
    for count in range(1, profile.limit + 1):
        if place(sku, {profile.name: count}, kept) is None:
            break
        most = count
    return most


def creation_order(layout: Iterable[Placement]) -> Layout:
    """Return the slices in the order in which to create them: large ones first, then by start."""
    return tuple(sorted(layout, key=lambda placement: (-placement.size, placement.start)))
