"""The network interfaces of this process's namespace: addresses, rates, and how many bytes have passed."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from divvy.errors import InputError

_SIOCGIFADDR: Final = 0x8915
_SIOCGIFNETMASK: Final = 0x891B
_SIOCGIFFLAGS: Final = 0x8913
_UP: Final = 1
#: Of the process, unlike /sys, which shows the namespace of whoever mounted it.
_COUNTERS: Final = Path("/proc/self/net/dev")


@dataclass(frozen=True, slots=True)
class Rail:
    """One way out of this host.

    Attributes:
        name: What it is called, the device's name unless another is given.
        device: Network device.
        address: IPv4 address.
        prefix: Bits of its network.
    """

    name: str
    device: str
    address: str
    prefix: int = 24

    def reaches(self, other: Rail) -> bool:
        """Return whether the other rail's address is in this rail's network."""
        network = ipaddress.ip_network(f"{self.address}/{self.prefix}", strict=False)
        return ipaddress.ip_address(other.address) in network

    def to_json(self) -> dict[str, Any]:
        """Return the rail as agents tell it each other."""
        return {"name": self.name, "device": self.device, "address": self.address, "prefix": self.prefix}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Rail:
        """Return the rail that another agent told.

        Raises:
            ValueError: If the address is none.
        """
        address = str(ipaddress.ip_address(str(body["address"])))
        return cls(str(body["name"]), str(body["device"]), address, int(body["prefix"]))


def _ask(sock: socket.socket, request: int, device: str) -> bytes | None:
    try:
        return fcntl.ioctl(sock.fileno(), request, struct.pack("256s", device.encode()[:15]))
    except OSError:
        return None


def discover() -> list[Rail]:
    """Return a rail for each interface that is up and has an IPv4 address; loopback only without others."""
    out: list[Rail] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, device in socket.if_nameindex():
            raw, mask = _ask(sock, _SIOCGIFADDR, device), _ask(sock, _SIOCGIFNETMASK, device)
            flags = _ask(sock, _SIOCGIFFLAGS, device)
            if raw is None or mask is None or flags is None:
                continue
            if struct.unpack("H", flags[16:18])[0] & _UP:
                bits = int.from_bytes(mask[20:24], "big").bit_count()
                out.append(Rail(device, device, socket.inet_ntoa(raw[20:24]), bits))
    others = [rail for rail in out if not rail.address.startswith("127.")]
    return others or out


def choose(texts: Sequence[str]) -> list[Rail]:
    """Return the rails that ``DEVICE``, ``ADDRESS`` or ``NAME=ADDRESS`` mean; all of them for no text.

    Raises:
        InputError: With one fault for each text that means none.
    """
    found = discover()
    if not texts:
        return found
    out: list[Rail] = []
    for text in texts:
        name, _, wanted = text.rpartition("=")
        match = next((r for r in found if wanted in (r.device, r.address)), None)
        if match is None and wanted.startswith("127."):
            lo = next((device for _, device in socket.if_nameindex() if device == "lo"), "lo")
            match = Rail(lo, lo, wanted, 8)
        if match is None:
            shown = ", ".join(f"{r.device} ({r.address})" for r in found)
            raise InputError.one("rail-unknown", f"no rail {text!r}", path="--rail", allowed=shown)
        out.append(Rail(name or (match.device if wanted == match.device else wanted), *_rest(match)))
    return out


def _rest(rail: Rail) -> tuple[str, str, int]:
    return rail.device, rail.address, rail.prefix


@dataclass(frozen=True, slots=True)
class Passed:
    """Bytes that have passed an interface since it exists."""

    sent: int
    received: int


def counters() -> dict[str, Passed]:
    """Return the counters of every interface of this process's namespace."""
    out: dict[str, Passed] = {}
    for line in _COUNTERS.read_text(encoding="ascii").splitlines()[2:]:
        device, _, numbers = line.partition(":")
        columns = numbers.split()
        out[device.strip()] = Passed(sent=int(columns[8]), received=int(columns[0]))
    return out
