"""A layout in the words of other tools: mig-parted, nvidia-smi, Kubernetes; and a drawing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from divvy.errors import NotFoundError
from divvy.fleet.mig.layout import creation_order
from divvy.fleet.mig.profile import Layout, Sku

FORMS: Final = ("mig-parted", "nvidia-smi", "k8s")
_CELL: Final = 8


def emit(form: str, sku: Sku, layouts: Sequence[Layout]) -> str:
    """Return the layouts of GPUs 0, 1, ... in one of the forms.

    Raises:
        NotFoundError: If there is no such form.
    """
    if form == "mig-parted":
        return mig_parted(sku, layouts)
    if form == "nvidia-smi":
        return "\n".join(nvidia_smi(sku, layouts)) + "\n"
    if form == "k8s":
        return kubernetes(sku, layouts)
    raise NotFoundError.one("unknown-form", f"no form {form!r}", path="--emit", allowed=", ".join(FORMS))


def mig_parted(sku: Sku, layouts: Sequence[Layout], name: str = "divvy") -> str:
    """Return a mig-parted configuration; GPUs with the same slices share an entry."""
    groups: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for index, layout in enumerate(layouts):
        counts = Counter(placement.profile for placement in creation_order(layout))
        groups.setdefault(tuple(counts.items()), []).append(index)
    lines = ["version: v1", "mig-configs:", f"  {name}:  # {sku.name}"]
    for counts_of, devices in groups.items():
        lines += [f"    - devices: [{', '.join(map(str, devices))}]", "      mig-enabled: true"]
        if counts_of:
            lines += [
                "      mig-devices:",
                *(f'        "{profile}": {count}' for profile, count in counts_of),
            ]
        else:
            lines.append("      mig-devices: {}")
    return "\n".join(lines) + "\n"


def nvidia_smi(sku: Sku, layouts: Sequence[Layout]) -> list[str]:
    """Return commands that cut idle GPUs so, with start indices, large slices first, compute instances too.

    The listed GPUs lose what they are cut into now. Profiles are named: numbers differ between drivers.
    """
    commands = [f"# {sku.name}: GPUs must be idle; this removes the slices that they have now"]
    for index, layout in enumerate(layouts):
        commands += [
            f"nvidia-smi -i {index} -mig 1",
            f"nvidia-smi mig -i {index} -dci",
            f"nvidia-smi mig -i {index} -dgi",
        ]
        if layout:
            wanted = ",".join(f"{p.profile}:{p.start}" for p in creation_order(layout))
            commands.append(f"nvidia-smi mig -i {index} -cgi {wanted} -C")
    commands.append("nvidia-smi mig -lgi")
    return commands


def resource_name(profile: str) -> str:
    """Return the resource of a profile (mixed strategy), such as ``nvidia.com/mig-1g.10gb``."""
    return f"nvidia.com/mig-{profile.replace('+', '.')}"


def kubernetes(sku: Sku, layouts: Sequence[Layout]) -> str:
    """Return what the node will offer (mixed strategy), and the mig-parted ConfigMap that makes it so."""
    counts = Counter(p.profile for layout in layouts for p in creation_order(layout))
    body = "".join(f"    {line}\n" for line in mig_parted(sku, layouts).splitlines())
    offered = "".join(f"#   {resource_name(profile)}: {count}\n" for profile, count in counts.items())
    return (
        "# kubectl apply -f FILE; kubectl label node NODE nvidia.com/mig.config=divvy --overwrite\n"
        "# The node then offers (nvidia.com/mig.strategy=mixed):\n"
        f"{offered}"
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: divvy-mig-config\ndata:\n  config.yaml: |\n"
        f"{body}"
    )


def _label(profile: str) -> str:
    """Return a profile without its memory: ``1g``, ``1g+me``."""
    size, _, rest = profile.partition(".")
    return size + rest.partition("gb")[2]


def draw(sku: Sku, layout: Layout) -> str:
    """Return one GPU as a line of memory slices, such as ``[4g----------------------------][3g---``."""
    by_start = {placement.start: placement for placement in layout}
    parts, cell = [], 0
    while cell < sku.memory_slices:
        placement = by_start.get(cell)
        width = placement.size if placement is not None else 1
        room = width * _CELL - 2
        text = _label(placement.profile) if placement is not None else ""
        parts.append(f"[{text[:room]:-<{room}}]" if text else " " * (width * _CELL))
        cell += width
    return "".join(parts).rstrip()
