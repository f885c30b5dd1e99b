"""What a lab of rails is, and the commands that make, change and remove it; nothing is run here.

Every host is a network namespace with one interface per rail; the switch is a namespace with one bridge per
rail. A host's sending is limited by htb at its interface, its receiving by tbf at the port of the switch, so
that several senders into one host (incast) share what that host can take, as on a real switch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from divvy.errors import Fault, InputError
from divvy.fleet.topology.graph import (
    Kind,
    Link,
    LinkKind,
    Origin,
    Peering,
    Source,
    Topology,
    Vertex,
    topology,
)

Command = tuple[str, ...]

PREFIX: Final = "dvr"
MOST_HOSTS: Final = 64
MOST_RAILS: Final = 8
RATES_HELP: Final = (
    'one rate per rail for all hosts ("4gbit,1gbit"), or per host with / between them '
    '("4gbit,2gbit/2gbit,1gbit"); units kbit, mbit, gbit'
)

_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgKMG])(?:[bB]it|b)(?:/s|ps)?", re.ASCII)
_SCALE: Final = {"k": 10**3, "m": 10**6, "g": 10**9}
_NAME: Final = re.compile(r"[a-z0-9]{1,8}", re.ASCII)
_SPACE: Final = re.compile(rf"({PREFIX}-([a-z0-9]{{1,8}})-(?:sw|h\d+))(?:\s|$)", re.ASCII)
_LEAST_RATE: Final = 10**5
_MOST_RATE: Final = 10**11
_BURST_SECONDS: Final = 0.0005
_LEAST_BURST: Final = 80_000
_QUEUE: Final = "20ms"


@dataclass(frozen=True, slots=True)
class Fabric:
    """A lab as it stands.

    Attributes:
        name: Lower-case letters and digits, at most eight.
        rates: Bits per second of each host's rails, each way.
        cut: Rails that carry nothing now, as (host, rail).
        mtu: Bytes of a frame.
    """

    name: str
    rates: tuple[tuple[int, ...], ...]
    cut: tuple[tuple[int, int], ...] = ()
    mtu: int = 9000

    @property
    def hosts(self) -> int:
        """Return the number of hosts."""
        return len(self.rates)

    @property
    def rails(self) -> int:
        """Return the number of rails of each host."""
        return len(self.rates[0])

    @property
    def switch(self) -> str:
        """Return the namespace of the switch."""
        return f"{PREFIX}-{self.name}-sw"

    def namespace(self, host: int) -> str:
        """Return the namespace of a host."""
        return f"{PREFIX}-{self.name}-h{host}"

    def address(self, host: int, rail: int) -> str:
        """Return the address of a host on a rail."""
        return f"10.77.{rail}.{10 + host}"

    def enter(self, host: int) -> Command:
        """Return the words to put before a command that is to run on a host."""
        return ("ip", "netns", "exec", self.namespace(host))

    def to_json(self) -> dict[str, Any]:
        """Return the ``divvy.lab.rails/1`` document."""
        return {
            "schema": "divvy.lab.rails/1",
            "name": self.name,
            "mtu": self.mtu,
            "switch": self.switch,
            "hosts": [
                {
                    "host": f"h{host}",
                    "namespace": self.namespace(host),
                    "enter": list(self.enter(host)),
                    "rails": [
                        {
                            "rail": f"rail{rail}",
                            "device": device(rail),
                            "address": self.address(host, rail),
                            "bits_per_second": rate,
                            "up": (host, rail) not in self.cut,
                        }
                        for rail, rate in enumerate(row)
                    ],
                }
                for host, row in enumerate(self.rates)
            ],
        }


def device(rail: int) -> str:
    """Return the interface of a rail on every host."""
    return f"e{rail}"


def port(host: int, rail: int) -> str:
    """Return the interface of the switch towards a host."""
    return f"p{host}-{rail}"


def parse_rate(text: str) -> int:
    """Return bits per second of text such as ``400mbit``, ``4 Gbit/s`` or ``2.5gbps``.

    Raises:
        ValueError: If it is no rate, or one that a link here cannot have.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text.strip()!r} is no rate: a number and kbit, mbit or gbit")
    rate = round(float(match.group(1)) * _SCALE[match.group(2).lower()])
    if not _LEAST_RATE <= rate <= _MOST_RATE:
        raise ValueError(f"{text.strip()!r} is not from 100kbit to 100gbit")
    return rate


def format_rate(rate: int) -> str:
    """Return a rate as people write it: ``4gbit``, ``12.5mbit``."""
    for letter in ("g", "m"):
        if rate >= _SCALE[letter]:
            return f"{rate / _SCALE[letter]:.12g}{letter}bit"
    return f"{rate / 1000:.12g}kbit"


def read_fabric(name: str, hosts: int, rails: int, rates: str, *, mtu: int = 9000) -> Fabric:
    """Return the lab that somebody asked for.

    Args:
        name: Its name.
        hosts: How many hosts.
        rails: How many rails each.
        rates: See `RATES_HELP`.
        mtu: Bytes of a frame.

    Raises:
        InputError: With every fault.
    """
    faults = _name_faults(name)
    for option, value, most in (("--hosts", hosts, MOST_HOSTS), ("--rails", rails, MOST_RAILS)):
        least = 2 if option == "--hosts" else 1
        if not least <= value <= most:
            faults.append(Fault("lab-size", option, f"{value}", f"{least} to {most}"))
    if not 1280 <= mtu <= 65_000:
        faults.append(Fault("lab-mtu", "--mtu", f"{mtu}", "1280 to 65000"))
    table = _table(rates, hosts, rails, faults)
    if faults:
        raise InputError("the lab cannot be built so", faults)
    return Fabric(name, table, mtu=mtu)


def _name_faults(name: str) -> list[Fault]:
    """Return the fault of a name that cannot be part of a namespace and of a file."""
    if _NAME.fullmatch(name):
        return []
    return [Fault("lab-name", "--name", f"{name!r} is no name", "1 to 8 lower-case letters and digits")]


def check_name(name: str) -> None:
    """Refuse a name that no lab can have.

    Raises:
        InputError: If it is one.
    """
    if faults := _name_faults(name):
        raise InputError("there can be no lab of that name", faults)


def _table(text: str, hosts: int, rails: int, faults: list[Fault]) -> tuple[tuple[int, ...], ...]:
    """Return the rates by host and rail; faults are added."""
    rows = [row.split(",") for row in text.split("/")]
    if len(rows) == 1:
        rows = rows * max(hosts, 0)
    before = len(faults)
    if len(rows) != hosts:
        faults.append(Fault("lab-rates", "--rates", f"{text!r} has {len(rows)} hosts of {hosts}", RATES_HELP))
    table: list[tuple[int, ...]] = []
    for row in rows:
        cells = row * rails if len(row) == 1 else row
        if len(cells) != rails:
            faults.append(
                Fault(
                    "lab-rates", "--rates", f"{','.join(row)!r} has {len(row)} of {rails} rails", RATES_HELP
                )
            )
            break
        try:
            table.append(tuple(parse_rate(cell) for cell in cells))
        except ValueError as error:
            faults.append(Fault("lab-rates", "--rates", str(error), RATES_HELP))
            break
    return tuple(table) if len(faults) == before else ()


def build(fabric: Fabric) -> Iterator[Command]:
    """Yield the commands that make a lab."""
    switch = fabric.switch
    yield ("ip", "netns", "add", switch)
    for rail in range(fabric.rails):
        yield ("ip", "-n", switch, "link", "add", f"rail{rail}", "type", "bridge")
        yield ("ip", "-n", switch, "link", "set", f"rail{rail}", "mtu", f"{fabric.mtu}", "up")
    for host, row in enumerate(fabric.rates):
        inside = fabric.namespace(host)
        yield ("ip", "netns", "add", inside)
        yield ("ip", "-n", inside, "link", "set", "lo", "up")
        for rail, rate in enumerate(row):
            near, far, mtu = device(rail), port(host, rail), f"{fabric.mtu}"
            ends = ("netns", inside, "type", "veth", "peer", "name", far, "netns", switch)
            yield ("ip", "link", "add", "name", near, *ends)
            yield ("ip", "-n", switch, "link", "set", far, "master", f"rail{rail}", "mtu", mtu, "up")
            yield ("ip", "-n", inside, "addr", "add", f"{fabric.address(host, rail)}/24", "dev", near)
            yield ("ip", "-n", inside, "link", "set", near, "mtu", mtu, "up")
            yield (
                "tc",
                "-n",
                inside,
                "qdisc",
                "add",
                "dev",
                near,
                "root",
                "handle",
                "1:",
                "htb",
                "default",
                "1",
            )
            yield from limit(fabric, host, rail, rate, verb="add")


def limit(fabric: Fabric, host: int, rail: int, rate: int, *, verb: str = "change") -> Iterator[Command]:
    """Yield the commands that set the rate of a rail: what a host sends, and what the switch sends to it."""
    burst = f"{max(_LEAST_BURST, round(rate / 8 * _BURST_SECONDS))}"
    near, far, text = device(rail), port(host, rail), f"{rate}bit"
    shape = ("rate", text, "burst", burst, "cburst", burst, "quantum", "60000")
    inside = ("tc", "-n", fabric.namespace(host))
    yield (*inside, "class", verb, "dev", near, "parent", "1:", "classid", "1:1", "htb", *shape)
    bucket = ("rate", text, "burst", burst, "latency", _QUEUE)
    yield ("tc", "-n", fabric.switch, "qdisc", verb, "dev", far, "root", "tbf", *bucket)


def switch_port(fabric: Fabric, host: int, rail: int, *, up: bool) -> Iterator[Command]:
    """Yield the command that cuts a rail at the switch, or joins it again; the host sees its carrier go."""
    word = "up" if up else "down"
    yield ("ip", "-n", fabric.switch, "link", "set", port(host, rail), word)


def remove(names: Sequence[str]) -> Iterator[Command]:
    """Yield the commands that remove namespaces; their links go with them."""
    for name in names:
        yield ("ip", "netns", "del", name)


def namespaces_of(listing: str) -> dict[str, list[str]]:
    """Return the namespaces of every lab, by its name, in what ``ip netns list`` printed."""
    found: dict[str, list[str]] = {}
    for line in listing.splitlines():
        match = _SPACE.match(line)
        if match:
            found.setdefault(match.group(2), []).append(match.group(1))
    return found


def with_rate(fabric: Fabric, host: int, rail: int, rate: int) -> Fabric:
    """Return the lab with another rate of a rail."""
    row = list(fabric.rates[host])
    row[rail] = rate
    return replace(fabric, rates=(*fabric.rates[:host], tuple(row), *fabric.rates[host + 1 :]))


def with_cut(fabric: Fabric, host: int, rail: int, *, cut: bool) -> Fabric:
    """Return the lab with a rail cut or joined again."""
    left = tuple(pair for pair in fabric.cut if pair != (host, rail))
    return replace(fabric, cut=(*left, (host, rail)) if cut else left)


def counters_of(text: str) -> dict[str, tuple[int, int]]:
    """Return bytes sent and received by interface, from ``ip -s -j link``."""
    return {
        entry["ifname"]: (int(entry["stats64"]["tx"]["bytes"]), int(entry["stats64"]["rx"]["bytes"]))
        for entry in json.loads(text)
    }


def dump(fabric: Fabric) -> str:
    """Return a lab as its state file holds it."""
    return json.dumps(asdict(fabric))


def parse_state(text: str) -> Fabric:
    """Return the lab of a state file.

    Raises:
        ValueError: If it is none.
    """
    try:
        body = json.loads(text)
        rates = tuple(tuple(int(rate) for rate in row) for row in body["rates"])
        cut = tuple((int(host), int(rail)) for host, rail in body["cut"])
        name = str(body["name"])
        whole = rates and rates[0] and len({len(row) for row in rates}) == 1 and _NAME.fullmatch(name)
        if not whole:
            raise ValueError("it names no lab")
        return Fabric(name, rates, cut, int(body["mtu"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"it is damaged: {error!r}") from error


def topology_of(fabric: Fabric) -> Topology:
    """Return the lab as a graph of hosts, interfaces and rails; a rail that is cut is left out."""
    source = Source(Origin.WIDTH, "limit of the lab's link", fabric.name)
    inside = Source(Origin.DEFAULT, "memory of the host to its interface", fabric.name)
    vertices = [Vertex(f"rail{rail}", Kind.SWITCH) for rail in range(fabric.rails)]
    links: list[Link] = []
    for host, row in enumerate(fabric.rates):
        node = f"h{host}"
        vertices.append(Vertex(node, Kind.NODE, machine=node))
        for rail, rate in enumerate(row):
            nic = f"{node}/{device(rail)}"
            vertices.append(Vertex(nic, Kind.NIC, name=device(rail), machine=node))
            links.append(Link(nic, node, LinkKind.PCIE, 100.0, inside, 0.1))
            if (host, rail) not in fabric.cut:
                links.append(Link(nic, f"rail{rail}", LinkKind.NETWORK, rate / 8e9, source, 20.0))
    return topology(fabric.name, vertices, links, Peering(100.0, 100.0), sources=[f"lab {fabric.name}"])
