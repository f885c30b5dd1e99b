"""A picture of a cluster: switches in tiers, below each leaf its nodes, gathered by NVLink domain."""

from __future__ import annotations

from collections import defaultdict
from typing import Final
from xml.sax.saxutils import escape

from divvy.fleet.topology.graph import Kind, Link, LinkKind, Topology
from divvy.fleet.topology.svg import Canvas, place_legend
from divvy.fleet.topology.words import COLOURS

_CELL: Final = 15.0
_ACROSS: Final = 6
_PAD: Final = 16.0
_TIER: Final = 92.0
_MANY_LINKS: Final = 60


def draw_cluster(topo: Topology) -> str:
    """Return the picture."""
    nodes_of, gpus_of = _below(topo)
    tiers, lower = _tiers(topo)
    homes = [s for s in tiers[0] if nodes_of[s]]
    across = _ACROSS if len(homes) <= 16 else 4
    block = across * (_CELL + 3) + 2 * _PAD
    most = max((len(nodes_of[home]) for home in homes), default=1)
    high = -(-most // across) * (_CELL + 3) + 54
    busiest = max(len(tier) for tier in tiers)
    width = max(len(homes) * (block + 14) + 40, busiest * 58 + 60, 640)
    canvas = Canvas(width, len(tiers) * _TIER + high + 140)
    canvas.title(topo.name)
    blocks = {home: width * (i + 0.5) / len(homes) for i, home in enumerate(homes)}
    x, y = _places(tiers, lower, blocks, width)
    _uplinks(canvas, topo, x, y)
    for tier in tiers:
        wide = min(92.0, width / max(1, len(tier)) - 8)
        for name in tier:
            fill, stroke = COLOURS[Kind.SWITCH]
            canvas.box(x[name], y[name], wide, 30, fill, stroke, escape(name))
    for home in homes:
        frame = (blocks[home], y[home] + 58, block, high, across)
        _block(canvas, topo, nodes_of[home], gpus_of, frame)
        _downlinks(canvas, topo, nodes_of[home], frame, x, y)
    place_legend(canvas, topo)
    return canvas.text()


def _places(
    tiers: list[list[str]], lower: dict[str, list[str]], blocks: dict[str, float], width: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Return where the switches stand: over their blocks or lower switches where that keeps them apart."""
    x: dict[str, float] = {}
    y: dict[str, float] = {}
    for level, names in enumerate(tiers):
        over = {n: [x[c] for c in lower[n] if c in x] for n in names}
        middle = {n: sum(xs) / len(xs) for n, xs in over.items() if xs}
        apart = len({round(value / 60) for value in middle.values()}) == len(names)
        for position, name in enumerate(names):
            y[name] = 64 + (len(tiers) - 1 - level) * _TIER
            even = width * (position + 0.5) / len(names)
            if level == 0:
                x[name] = blocks[name] if len(blocks) == len(names) else even
            else:
                x[name] = middle[name] if apart else even
    return x, y


def _downlinks(
    canvas: Canvas,
    topo: Topology,
    nodes: list[str],
    frame: tuple[float, float, float, float, int],
    x: dict[str, float],
    y: dict[str, float],
) -> None:
    """Draw one line from each switch that the nodes of a block hang on."""
    inside = set(nodes)
    drawn: set[str] = set()
    for link in topo.links:
        for switch, end in ((link.a, link.b), (link.b, link.a)):
            if switch in x and switch not in drawn and topo.vertices[end].machine in inside:
                drawn.add(switch)
                canvas.line(x[switch], y[switch] + 30, frame[0], frame[1], link)


def _below(topo: Topology) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Return the machines that hang on each switch, and the GPUs of each machine."""
    nodes: dict[str, list[str]] = defaultdict(list)
    gpus: dict[str, int] = defaultdict(int)
    for gpu in topo.of_kind(Kind.GPU):
        gpus[gpu.machine] += 1
    placed: set[str] = set()
    for link in topo.links:
        for switch, end in ((link.a, link.b), (link.b, link.a)):
            machine = topo.vertices[end].machine
            is_leaf = topo.vertices[switch].kind is Kind.SWITCH and link.kind is LinkKind.NETWORK
            if is_leaf and machine and machine not in placed:
                placed.add(machine)
                nodes[switch].append(machine)
    return nodes, gpus


def _tiers(topo: Topology) -> tuple[list[list[str]], dict[str, list[str]]]:
    """Return the switches by their distance from the machines, and the lower switches of each."""
    switches = [v.id for v in topo.of_kind(Kind.SWITCH)]
    near: dict[str, list[str]] = defaultdict(list)
    level: dict[str, int] = {}
    for link in topo.links:
        ends = (topo.vertices[link.a].kind, topo.vertices[link.b].kind)
        if ends == (Kind.SWITCH, Kind.SWITCH):
            near[link.a].append(link.b)
            near[link.b].append(link.a)
        elif Kind.SWITCH in ends and link.kind is LinkKind.NETWORK:
            switch, end = (link.a, link.b) if ends[0] is Kind.SWITCH else (link.b, link.a)
            if topo.vertices[end].machine:
                level[switch] = 0
    frontier = list(level) or switches[:1]
    for start in frontier:
        level[start] = 0
    while frontier:
        found = [n for s in frontier for n in near[s] if n not in level]
        for name in found:
            level[name] = min(level[s] for s in near[name] if s in level) + 1
        frontier = list(dict.fromkeys(found))
    count = max(level.values(), default=0) + 1
    tiers = [[s for s in switches if level.get(s, 0) == i] for i in range(count)]
    parents = {s: [n for n in near[s] if level.get(n, 0) < level.get(s, 0)] for s in switches}
    return tiers or [[]], parents


def _uplinks(canvas: Canvas, topo: Topology, x: dict[str, float], y: dict[str, float]) -> None:
    """Draw the links between switches."""
    links: list[Link] = [k for k in topo.links if k.a in x and k.b in x]
    canvas.fineness = 1.0 if len(links) <= _MANY_LINKS else 0.2
    for link in links:
        low, high = (link.a, link.b) if y[link.a] > y[link.b] else (link.b, link.a)
        canvas.line(x[high], y[high] + 30, x[low], y[low], link)
        if len(links) <= 30:
            canvas.label(
                (x[high] + x[low]) / 2 + 4,
                (y[high] + 30 + y[low]) / 2,
                f"{link.gb_per_s:.4g} GB/s",
                anchor="start",
            )


def _block(
    canvas: Canvas,
    topo: Topology,
    nodes: list[str],
    gpus: dict[str, int],
    frame: tuple[float, float, float, float, int],
) -> None:
    """Draw the machines of a leaf as cells in a frame with the name of their NVLink domain."""
    x, y, wide, high, across = frame
    if not nodes:
        return
    domains = {
        v.domain for v in topo.vertices.values() if v.kind is Kind.GPU and v.machine in nodes and v.domain
    }
    fill, stroke = COLOURS[Kind.NVSWITCH] if domains else COLOURS[Kind.NODE]
    name = ", ".join(sorted(domains)[:2]) or "nodes"
    count = sum(gpus[node] for node in nodes)
    words = f"{len(nodes)} nodes" + (f", {count} GPUs" if count else "")
    canvas.box(x, y, wide, high, "#f6fbf6" if domains else "#fafafa", stroke, "")
    canvas.words(x, y + 17, name, 11.5, stroke, "middle")
    canvas.words(x, y + 31, words, 9.5, "#607d8b", "middle")
    for i in range(len(nodes)):
        left = x - wide / 2 + _PAD + (i % across) * (_CELL + 3) + _CELL / 2
        top = y + 42 + (i // across) * (_CELL + 3)
        canvas.box(left, top, _CELL, _CELL, fill, stroke, "")
