"""NVLinks from labels: pairs joined directly, or every GPU into one switch plane, by counting links."""

from __future__ import annotations

from collections import defaultdict

from divvy.fleet.topology.graph import Kind, Link, LinkKind, Origin, Source, Vertex
from divvy.fleet.topology.reading import MAX_NVLINKS, Reading, nvlinks
from divvy.fleet.topology.speeds import NVLINK_GB_PER_S


def add_nvlinks(reading: Reading, *, blackwell: bool) -> None:
    """Add the NVLinks of a labelled reading.

    A GPU has at most 18 links. Where the labels of one GPU add up to more, the links go to switches: the
    label then is the number of links that both GPUs have into the plane.
    """
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for (a, b), label in reading.labels.items():
        if nvlinks(label):
            counts[a][b] = counts[b][a] = nvlinks(label)
    for group in _components(counts):
        if any(sum(counts[gpu].values()) > MAX_NVLINKS for gpu in group):
            _plane(reading, group, counts, blackwell=blackwell)
        else:
            _mesh(reading, group, counts)


def _components(counts: dict[str, dict[str, int]]) -> list[list[str]]:
    """Return the groups of GPUs joined by NVLink."""
    seen: set[str] = set()
    out: list[list[str]] = []
    for start in counts:
        if start in seen:
            continue
        group, stack = [], [start]
        seen.add(start)
        while stack:
            gpu = stack.pop()
            group.append(gpu)
            for other in counts[gpu]:
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
        out.append(sorted(group, key=lambda gpu: list(counts).index(gpu)))
    return out


def _plane(reading: Reading, group: list[str], counts: dict[str, dict[str, int]], *, blackwell: bool) -> None:
    """Join the group by an NVSwitch plane."""
    generation = 5 if blackwell else 4 if max(max(c.values()) for c in counts.values()) > 12 else 3
    rate = NVLINK_GB_PER_S[generation]
    number = sum(1 for v in reading.vertices.values() if v.kind is Kind.NVSWITCH)
    plane = f"nvswitch{number}"
    reading.vertices[plane] = Vertex(plane, Kind.NVSWITCH)
    own = {gpu: max(counts[gpu].values()) for gpu in group}
    for gpu in group:
        text = f"NV{own[gpu]} x {rate:g} GB/s (NVLink {generation})"
        source = Source(Origin.LABEL, text, reading.name)
        reading.links.append(Link(gpu, plane, LinkKind.NVLINK, own[gpu] * rate, source, 0.6, count=own[gpu]))
    for a in group:
        for b, count in counts[a].items():
            if a < b and count != min(own[a], own[b]):
                reading.warn(
                    "nvlink-pair-reduced",
                    f"row {a}, column {b}",
                    f"{a} - {b} reads NV{count}, where their links into the switches would give "
                    f"NV{min(own[a], own[b])}",
                    "nvidia-smi nvlink --status on both; a fabric manager partition may be uneven",
                )


def _mesh(reading: Reading, group: list[str], counts: dict[str, dict[str, int]]) -> None:
    """Join each pair of the group by its own links."""
    total = max(sum(counts[gpu].values()) for gpu in group)
    generation = 4 if total > 12 else 3 if total > 6 or len(group) <= 2 else 2
    rate = NVLINK_GB_PER_S[generation]
    if len(group) == 2 and total == 4:
        rate = 14.0625  # the bridge of A40 and A6000 class cards: 4 links, 112.5 GB/s both ways
    for a in group:
        for b, count in counts[a].items():
            if group.index(a) < group.index(b):
                text = f"NV{count} x {rate:g} GB/s"
                source = Source(Origin.LABEL, text, reading.name)
                reading.links.append(Link(a, b, LinkKind.NVLINK, count * rate, source, 0.6, count=count))
