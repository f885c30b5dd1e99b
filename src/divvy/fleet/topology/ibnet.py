"""`ibnetdiscover`: switches, adapters and their cables; and `ibstat`: the ports of one host."""

from __future__ import annotations

import re
from typing import Final

from divvy.errors import InputError
from divvy.fleet.topology.graph import Kind, Link, LinkKind, Origin, Source, Vertex
from divvy.fleet.topology.reading import Reading

#: One lane, Gb/s of data, by the InfiniBand generation.
LANE_GBIT: Final = {
    "SDR": 2.0,
    "DDR": 4.0,
    "QDR": 8.0,
    "FDR10": 10.0,
    "FDR": 13.64,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
_HEAD: Final = re.compile(r'^(Switch|Ca|Rt)\s+\d+\s+"([^"]+)"\s*#\s*"([^"]*)"')
_PORT: Final = re.compile(
    r'^\[(\d+)\](?:\([0-9a-fA-F]+\))?\s+"([^"]+)"\[(\d+)\](?:\([0-9a-fA-F]+\))?\s*#(.*?)(\d+)x([A-Z]+[0-9]*)\s*$'
)
_QUOTED: Final = re.compile(r'"([^"]*)"')
_HOST: Final = re.compile(r"^(\S+)\s+(\S+)$")
_DUMP = "run ibnetdiscover again and save its whole output"
_IBSTAT_CA: Final = re.compile(r"^CA '([^']+)'")
_IBSTAT_RATE: Final = re.compile(r"^\s*Rate:\s*(\d+(?:\.\d+)?)")
_IBSTAT_FIELD: Final = re.compile(r"^\s*(State|Physical state|Link layer|SM lid):\s*(.+?)\s*$")


def read_ibnet(name: str, text: str) -> Reading:
    """Return the fabric that an ibnetdiscover dump shows; hosts are opaque nodes.

    Raises:
        InputError: If there is neither a switch nor an adapter in the text.
    """
    reading = Reading(name, "ibnetdiscover", tree=True, cluster=True)
    ports: dict[tuple[str, int], tuple[str, int, float, str, int]] = {}
    titles: dict[str, tuple[str, str]] = {}
    named: dict[str, tuple[str, str]] = {}
    current = ""
    for number, line in enumerate(text.splitlines(), start=1):
        head = _HEAD.match(line)
        if head:
            current = head.group(2)
            titles[current] = (head.group(1), head.group(3))
        elif line.startswith("["):
            port = _PORT.match(line)
            if port is None or not current:
                reading.warn(
                    "line-unreadable", f"line {number}", f"not a port line: {line[:60]!r}; left out", _DUMP
                )
                continue
            here, there, far = int(port.group(1)), port.group(2), int(port.group(3))
            gbit = LANE_GBIT.get(port.group(6), 0.0) * int(port.group(5))
            if not gbit:
                reading.warn(
                    "rate-unknown",
                    f"line {number}",
                    f"generation {port.group(6)} is unknown; left out",
                    _DUMP,
                )
                continue
            words = _QUOTED.search(port.group(4))
            named[there] = ("Switch" if there.startswith("S-") else "Ca", words.group(1) if words else "")
            ports[current, here] = (there, far, gbit, f"{port.group(5)}x{port.group(6)}", number)
    if not titles:
        raise InputError.one("unreadable", f"{name} holds no switch and no adapter", path=name, fix=_DUMP)
    missing = {guid: title for guid, title in named.items() if guid not in titles}
    if missing:
        reading.warn(
            "end-undescribed",
            f"{len(missing)} ends, such as {next(iter(missing))}",
            "they are named by their cables only (is the dump cut off?); their other cables are unknown",
            _DUMP,
        )
    names = _vertices(titles | missing, reading)
    _cables(ports, names, reading)
    return reading


def _vertices(titles: dict[str, tuple[str, str]], reading: Reading) -> dict[str, str]:
    """Add switches, hosts and their NICs; return GUID to vertex id."""
    names: dict[str, str] = {}
    loose = 0
    for guid, (kind, title) in titles.items():
        host = _HOST.match(title)
        if kind == "Switch":
            short = title.split(";")[-1].split(":")[0] or guid
            names[guid] = short if short not in reading.vertices else guid
            reading.vertices[names[guid]] = Vertex(names[guid], Kind.SWITCH, name=title, bus=guid.lower())
        elif host is not None:
            node, device = host.groups()
            vertex = f"{node}/{device}"
            names[guid] = vertex if vertex not in reading.vertices else f"{vertex}@{guid}"
            reading.vertices.setdefault(node, Vertex(node, Kind.NODE, machine=node))
            reading.vertices[names[guid]] = Vertex(
                names[guid], Kind.NIC, name=device, machine=node, bus=guid.lower()
            )
            source = Source(Origin.DEFAULT, "inside of the host not given; as fast as the adapter")
            reading.links.append(Link(names[guid], node, LinkKind.HOST, 50.0, source, 1.0))
        else:
            names[guid] = guid
            loose += "Aggregation" not in title
            reading.vertices[guid] = Vertex(guid, Kind.NIC, name=title, bus=guid.lower())
    if loose:
        reading.warn(
            "nic-nameless",
            f"{loose} adapters",
            "their node description names no host, so they belong to no node",
            "set the node description on these hosts (rdma-ndd), then run ibnetdiscover again",
        )
    return names


def _cables(
    ports: dict[tuple[str, int], tuple[str, int, float, str, int]], names: dict[str, str], reading: Reading
) -> None:
    """Add one link for each pair of ends with all cables between them; both ends must agree."""
    total: dict[tuple[str, str], float] = {}
    words: dict[tuple[str, str], list[str]] = {}
    done: set[frozenset[tuple[str, int]]] = set()
    for (guid, port), (far_guid, far_port, gbit, word, line) in ports.items():
        cable = frozenset({(guid, port), (far_guid, far_port)})
        if cable in done:
            continue
        done.add(cable)
        back = ports.get((far_guid, far_port))
        if back is not None and (back[0], back[1]) != (guid, port):
            reading.warn(
                "cable-contradicts",
                f"line {line}",
                f"the other end names {back[0]}[{back[1]}]; left out",
                _DUMP,
            )
            continue
        if back is not None and back[2] != gbit:
            reading.warn(
                "cable-speed",
                f"line {line}",
                f"{word} here, {back[3]} at the other end; the lower is used",
                _DUMP,
            )
        key = (names[guid], names[far_guid])
        key = key if key in total or (key[1], key[0]) not in total else (key[1], key[0])
        total[key] = total.get(key, 0.0) + min(gbit, back[2] if back is not None else gbit) / 8.0
        words.setdefault(key, []).append(word)
    for (a, b), rate in total.items():
        text = f"{len(words[a, b])} x {words[a, b][0]}"
        reading.links.append(
            Link(a, b, LinkKind.NETWORK, rate, Source(Origin.WIDTH, text, reading.name), 0.6)
        )


def read_ibstat(name: str, text: str) -> Reading:
    """Return the port rates and states that `ibstat` shows, to be merged with a picture of the machine."""
    reading = Reading(name, "ibstat")
    device = ""
    for line in text.splitlines():
        head = _IBSTAT_CA.match(line.strip())
        rate = _IBSTAT_RATE.match(line)
        field = _IBSTAT_FIELD.match(line)
        if head:
            device = head.group(1)
        elif rate and device:
            reading.nic_gb_per_s[device] = float(rate.group(1)) / 8.0
        elif field and device:
            reading.facts[f"{device}.{field.group(1).lower()}"] = field.group(2)
            if field.group(1) == "State" and field.group(2) != "Active":
                reading.warn(
                    "port-down",
                    device,
                    f"the port is {field.group(2)}",
                    "check the cable and the subnet manager, or leave it out",
                )
    if not reading.nic_gb_per_s:
        raise InputError.one(
            "unreadable", f"{name} holds no port with a rate", path=name, fix="save the output of ibstat"
        )
    return reading
