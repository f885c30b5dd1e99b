"""A picture of a topology as SVG: sockets below, then switches, devices, NVLink and the network on top."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

from divvy.fleet.topology.graph import Kind, Link, LinkKind, Topology
from divvy.fleet.topology.picture_cluster import draw_cluster
from divvy.fleet.topology.svg import Canvas, place_legend
from divvy.fleet.topology.words import COLOURS

_SLOT: Final = 74.0
_BOX: Final = 60.0
_HIGH: Final = 34.0
_LOW: Final = 20.0
_GAP: Final = 34.0
_WIDE: Final = 40
_PLURAL: Final = {Kind.NIC: "NICs", Kind.STORAGE: "drives", Kind.PCI: "devices"}
_TREE: Final = frozenset({LinkKind.PCIE, LinkKind.HOST, LinkKind.C2C, LinkKind.CXL})
_MESH: Final = frozenset({LinkKind.NVLINK, LinkKind.XGMI})


@dataclass(slots=True)
class _Layout:
    """Where each vertex stands: centre, top, width; what is drawn once for several that are alike."""

    x: dict[str, float] = field(default_factory=dict)
    y: dict[str, float] = field(default_factory=dict)
    width: dict[str, float] = field(default_factory=dict)
    several: dict[str, int] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)


def draw(topo: Topology) -> str:
    """Return the picture of a machine, or of a cluster where there is more than one machine."""
    machines = {v.machine for v in topo.vertices.values() if v.machine}
    if len(machines) > 1 or topo.of_kind(Kind.NODE):
        return draw_cluster(topo)
    children = _children(topo)
    layout, bars = _Layout(), _Bars()
    _gather(topo, children, layout)
    cursor = 60.0
    for numa in [v.id for v in topo.of_kind(Kind.NUMA)]:
        start = cursor
        leaves = _leaves(numa, children)
        for leaf in leaves:
            layout.x[leaf] = cursor + _SLOT / 2
            cursor += _SLOT
        cursor = max(cursor, start + 2 * _SLOT)
        layout.x[numa], layout.width[numa] = (start + cursor) / 2, cursor - start - 14
        cursor += _GAP
    _levels(topo, children, layout)
    mesh = [k for k in topo.links if k.kind in _MESH and topo.vertices[k.b].kind is not Kind.NVSWITCH]
    bars.place(topo, layout, has_mesh=bool(mesh))
    canvas = Canvas(max(cursor + 26, 640), bars.height)
    canvas.title(f"{topo.name}")
    for link in topo.links:
        if link.a not in layout.hidden:
            _edge(canvas, topo, link, layout, bars)
    for link in mesh:
        _arc(canvas, link, layout, bars)
    for vertex in topo.vertices.values():
        if vertex.id in layout.x and vertex.id not in layout.hidden and vertex.kind is not Kind.MEMORY:
            _vertex(canvas, topo, vertex.id, layout, bars)
    place_legend(canvas, topo)
    return canvas.text()


class _Bars:
    """The rows of the picture from top to bottom, and the wide bars of networks and NVSwitch planes."""

    def __init__(self) -> None:
        self.fabric: dict[str, float] = {}
        self.plane: dict[str, float] = {}
        self.devices = 0.0
        self.top: dict[int, float] = {}
        self.height = 0.0
        self.span: dict[str, tuple[float, float]] = {}

    def place(self, topo: Topology, layout: _Layout, *, has_mesh: bool) -> None:
        """Set the height of every row."""
        y = 58.0
        for vertex in topo.of_kind(Kind.FABRIC):
            self.fabric[vertex.id] = y
            y += 46
        for vertex in topo.of_kind(Kind.NVSWITCH):
            self.plane[vertex.id] = y
            y += 46
        y += 96 if has_mesh else 22
        self.devices = y
        depth = max((int(d) for d in layout.y.values()), default=1)
        for name, level in layout.y.items():
            layout.y[name] = y + (depth - level) * 78
        self.height = y + depth * 78 + 172
        for link in topo.links:
            for bar, device in ((link.b, link.a), (link.a, link.b)):
                if bar in self.fabric or bar in self.plane:
                    x = layout.x.get(device, 60.0)
                    low, high = self.span.get(bar, (x, x))
                    self.span[bar] = (min(low, x), max(high, x))


def _children(topo: Topology) -> dict[str, list[str]]:
    """Return what hangs below each vertex of the PCIe tree."""
    out: dict[str, list[str]] = defaultdict(list)
    seen: set[str] = set()
    for link in topo.links:
        if link.kind in _TREE and link.a not in seen:
            seen.add(link.a)
            out[link.b].append(link.a)
    return out


def _gather(topo: Topology, children: dict[str, list[str]], layout: _Layout) -> None:
    """On a wide machine draw NICs or drives that hang on one place with equal rates as one box."""
    if sum(len(below) for below in children.values()) <= _WIDE:
        return
    rates: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for link in topo.links:
        rates[link.a].append((str(link.kind), round(link.gb_per_s, 1)))
    for below in children.values():
        alike: dict[tuple[object, ...], list[str]] = defaultdict(list)
        for child in below:
            vertex = topo.vertices[child]
            if vertex.kind in _PLURAL and not children.get(child):
                alike[vertex.kind, vertex.model, *rates[child]].append(child)
        for first, *others in alike.values():
            if others:
                layout.several[first] = 1 + len(others)
                layout.hidden.update(others)
        below[:] = [child for child in below if child not in layout.hidden]


def _leaves(vertex: str, children: dict[str, list[str]]) -> list[str]:
    """Return the devices below a vertex, in order."""
    below = children.get(vertex, [])
    return [
        leaf for child in below for leaf in (_leaves(child, children) if children.get(child) else [child])
    ]


def _levels(topo: Topology, children: dict[str, list[str]], layout: _Layout) -> None:
    """Place bridges over the middle of their devices; devices are on one row, sockets on the lowest."""
    levels: dict[str, int] = {}

    def height(vertex: str) -> int:
        below = children.get(vertex, [])
        levels[vertex] = 1 + max(height(child) for child in below) if below else 0
        if below:
            xs = [layout.x[child] for child in below if child in layout.x]
            layout.x.setdefault(vertex, sum(xs) / len(xs) if xs else 0.0)
        return levels[vertex]

    numas = [v.id for v in topo.of_kind(Kind.NUMA)]
    top = max((height(numa) for numa in numas), default=1) or 1
    for numa in numas:
        levels[numa] = top
    for vertex, level in levels.items():
        if vertex in layout.x:
            layout.y[vertex] = float(top - level)


def _edge(canvas: Canvas, topo: Topology, link: Link, layout: _Layout, bars: _Bars) -> None:
    """Draw one link of the tree, or from a device up to a bar."""
    a, b = link.a, link.b
    if link.kind is LinkKind.SOCKET and a in layout.x and b in layout.x:
        y = layout.y[a] + 64
        canvas.curve(layout.x[a], y, layout.x[b], y, 26, link)
        middle = (layout.x[a] + layout.x[b]) / 2
        if abs(layout.x[a] - layout.x[b]) < 9 * _SLOT + layout.width[a] and len(topo.of_kind(Kind.NUMA)) <= 3:
            canvas.label(middle, y + 34, f"{link.gb_per_s:.4g} GB/s")
        return
    bar_y = bars.fabric.get(b, bars.plane.get(b))
    if bar_y is not None and a in layout.x:
        shift = 9.0 if b in bars.fabric and topo.vertices[a].kind is Kind.GPU else 0.0
        canvas.line(layout.x[a] + shift, layout.y[a], layout.x[a] + shift, bar_y + 26, link)
        canvas.label(layout.x[a] + shift + 3, layout.y[a] - 8, f"{link.gb_per_s:.4g}", anchor="start")
    elif link.kind in _TREE and a in layout.x and b in layout.x:
        x = layout.x[b] if topo.vertices[b].kind is not Kind.NUMA else layout.x[a]
        foot = layout.y[a] + (_LOW if topo.vertices[a].kind is Kind.HOST_BRIDGE else _HIGH)
        canvas.line(layout.x[a], foot, x, layout.y[b], link)
        if link.kind is not LinkKind.HOST:
            middle = (layout.y[a] + _HIGH + layout.y[b]) / 2
            canvas.label((layout.x[a] + x) / 2 + 3, middle + 3, f"{link.gb_per_s:.4g}", anchor="start")


def _arc(canvas: Canvas, link: Link, layout: _Layout, bars: _Bars) -> None:
    """Draw a direct NVLink as a bow over the devices; longer ones are higher."""
    if link.a in layout.x and link.b in layout.x:
        a, b = sorted((layout.x[link.a], layout.x[link.b]))
        canvas.curve(a, bars.devices, b, bars.devices, -min(18 + (b - a) * 0.16, 116), link)


def _vertex(canvas: Canvas, topo: Topology, name: str, layout: _Layout, bars: _Bars) -> None:
    """Draw one vertex of the tree."""
    vertex = topo.vertices[name]
    fill, stroke = COLOURS[vertex.kind]
    x, y = layout.x[name], layout.y.get(name, bars.devices)
    if vertex.kind is Kind.NUMA:
        wide = layout.width[name]
        memory = next((k for k in topo.links if k.kind is LinkKind.MEMORY and name in (k.a, k.b)), None)
        words = f"memory {memory.gb_per_s:.4g} GB/s" if memory else ""
        canvas.box(x, y, wide, 64, fill, stroke, f"socket {name}", words)
    elif vertex.kind in (Kind.PCIE_SWITCH, Kind.HOST_BRIDGE):
        word = "PCIe switch" if vertex.kind is Kind.PCIE_SWITCH else ""
        canvas.box(x, y, _BOX, _HIGH if word else _LOW, fill, stroke, escape(name), word)
    else:
        words = vertex.model or (vertex.name if vertex.name != vertex.id else "")
        if name in layout.several:
            words, name = f"{name} ...", f"{layout.several[name]} {_PLURAL.get(vertex.kind, 'devices')}"
        canvas.box(x, y, _BOX, _HIGH, fill, stroke, escape(name), escape(words[:14]))
    canvas.bars(topo, bars.fabric, bars.plane, bars.span)
