"""Words of MIG: a profile is a kind of slice, a placement is a slice at a start, a SKU is a GPU's table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from divvy.errors import InputError

#: ``1g.10gb``, ``1g.10gb+me``, ``2g.48gb+me.all``, ``1g.24gb-me``, ``1c.2g.20gb`` (compute instance).
_NAME: Final = re.compile(
    r"(?:MIG\s+)?(?:(?P<c>\d+)c\.)?(?P<g>\d+)g\.(?P<gb>\d+)gb(?P<attribute>[+-][a-z][a-z.]*)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class ProfileName:
    """The parts of a profile's name.

    Attributes:
        gpcs: Compute slices of the GPU instance.
        memory_gb: Memory as marketed, in GB.
        attribute: ``+me``, ``+gfx``, ``+me.all``, ``-me`` or empty.
        compute: Compute slices of the compute instance, where the name has them (``1c.2g.20gb``).
    """

    gpcs: int
    memory_gb: int
    attribute: str = ""
    compute: int | None = None

    @property
    def text(self) -> str:
        """Return the name as drivers print it, without the leading ``MIG``."""
        prefix = "" if self.compute is None else f"{self.compute}c."
        return f"{prefix}{self.gpcs}g.{self.memory_gb}gb{self.attribute}"


def parse_profile_name(text: str, *, path: str = "") -> ProfileName:
    """Return the parts of a profile's name; a leading ``MIG`` is allowed.

    Raises:
        InputError: If the text is not a profile's name.
    """
    match = _NAME.fullmatch(text.strip())
    if match is None:
        raise InputError.one(
            "mig-profile-name",
            f"{text.strip()!r} is not a MIG profile",
            path=path,
            allowed='names such as "1g.10gb", "1g.10gb+me", "2g.48gb-me"',
        )
    compute = match["c"]
    return ProfileName(
        int(match["g"]), int(match["gb"]), match["attribute"] or "", None if compute is None else int(compute)
    )


@dataclass(frozen=True, slots=True)
class Profile:
    """A kind of slice of one SKU.

    Attributes:
        name: As the driver prints it, such as ``3g.40gb``.
        gpcs: Compute slices it takes.
        size: Memory slices it takes; the unit of `starts`.
        starts: Memory slices at which it may begin, ascending.
        limit: At most this many on one GPU.
        memory_gb: Memory as marketed, GB.
        sms: Streaming multiprocessors; 0 where no source says.
        profile_id: The driver's number, where it was read from a driver; -1 otherwise.
    """

    name: str
    gpcs: int
    size: int
    starts: tuple[int, ...]
    limit: int
    memory_gb: int
    sms: int = 0
    profile_id: int = -1

    @property
    def base(self) -> bool:
        """Return whether this is a plain profile: no attribute, and its gpcs are its claim.

        The double-memory 1g profile is told apart by its table, see `Sku.base_profiles`.
        """
        return "+" not in self.name and "-" not in self.name


@dataclass(frozen=True, slots=True, order=True)
class Placement:
    """A slice: a profile at a start.

    Attributes:
        start: First memory slice.
        size: Memory slices taken.
        profile: The profile's name.
    """

    start: int
    size: int
    profile: str

    @property
    def mask(self) -> int:
        """Return the memory slices taken, as bits."""
        return ((1 << self.size) - 1) << self.start


#: One GPU's slices, by start.
Layout = tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Sku:
    """What one kind of GPU can be cut into.

    Attributes:
        name: As users write it, such as ``A100-80GB``.
        compute_slices: Compute slices of the whole GPU (7, or 4 on A30 and RTX PRO 6000).
        memory_slices: Memory slices of the whole GPU (8, or 4).
        profiles: Every profile known, base profiles first, by size.
        aliases: Other names that mean this SKU, lower case.
        source: Where the facts come from.
    """

    name: str
    compute_slices: int
    memory_slices: int
    profiles: tuple[Profile, ...]
    aliases: tuple[str, ...] = ()
    source: str = ""

    @property
    def base_profiles(self) -> tuple[Profile, ...]:
        """Return one profile per number of compute slices: the plain one with the least memory."""
        plain: dict[int, Profile] = {}
        for profile in self.profiles:
            if profile.base and (profile.gpcs not in plain or profile.size < plain[profile.gpcs].size):
                plain[profile.gpcs] = profile
        return tuple(plain[gpcs] for gpcs in sorted(plain))

    def profile(self, name: str) -> Profile:
        """Return the profile of that name.

        Raises:
            InputError: If this SKU has no such profile; the fault lists those it has.
        """
        wanted = name.strip().removeprefix("MIG ").strip()
        for profile in self.profiles:
            if profile.name == wanted:
                return profile
        raise InputError.one(
            "mig-unknown-profile",
            f"{self.name} has no profile {wanted!r}",
            allowed=", ".join(profile.name for profile in self.profiles),
        )

    def by_gpcs(self, gpcs: int) -> Profile:
        """Return the base profile with that many compute slices.

        Raises:
            InputError: If there is none.
        """
        for profile in self.base_profiles:
            if profile.gpcs == gpcs:
                return profile
        raise InputError.one(
            "mig-unknown-size",
            f"{self.name} has no base profile of {gpcs} compute slices",
            allowed=", ".join(str(profile.gpcs) for profile in self.base_profiles),
        )

    def at(self, name: str, start: int) -> Placement:
        """Return the placement of a profile at a start.

        Raises:
            InputError: If the profile may not begin there.
        """
        profile = self.profile(name)
        if start not in profile.starts:
            raise InputError.one(
                "mig-start",
                f"{profile.name} cannot begin at memory slice {start} on {self.name}",
                allowed=", ".join(str(s) for s in profile.starts),
            )
        return Placement(start, profile.size, profile.name)


def gpcs_of(sku: Sku, layout: Iterable[Placement]) -> tuple[int, ...]:
    """Return the compute slices of each slice of a layout, in its order."""
    return tuple(sku.profile(placement.profile).gpcs for placement in layout)
