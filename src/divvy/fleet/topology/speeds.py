"""Reference speeds, one way, 1e9 bytes per second, each with its source; what a file says always wins."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

#: Bytes per second and lane, after line coding, by the transfer rate in GT/s.
PCIE_LANE_GB_PER_S: Final = {2.5: 0.25, 5.0: 0.5, 8.0: 0.98462, 16.0: 1.96923, 32.0: 3.93846, 64.0: 7.5625}

#: One NVLink, one way. NVLink 1 (P100) 20; 2 to 4 (V100, A100, H100) 25; 5 (B200) 50.
NVLINK_GB_PER_S: Final = {1: 20.0, 2: 25.0, 3: 25.0, 4: 25.0, 5: 50.0}

#: AMD XGMI, one link: 64 GB/s both ways per x16 link on MI300 (48 on MI200-class, 23 on MI100), per RCCL.
XGMI_GB_PER_S: Final = {"gfx942": 48.0, "gfx950": 48.0, "910": 36.0, "908": 23.0}
XGMI_DEFAULT_GB_PER_S: Final = 36.0

NVLINK_C2C_GB_PER_S: Final = 450.0
"""Grace to its GPU; 360 to 377 are measured."""

SOCKET_GB_PER_S: Final = {"skylake": 10.0, "sapphire": 22.0, "emerald": 40.0, "amd": 16.0, "grace": 100.0}
"""Socket to socket as NCCL assumes it (UPI of three Intel generations, AMD's xGMI)."""

HOST_MEMORY_GB_PER_S: Final = 150.0
"""Copy traffic that one socket's memory takes, one way (eight DDR channels, default)."""

NVME_GB_PER_S: Final = 6.5
"""A gen-4 x4 NVMe drive, sequential read (default)."""

CXL_GB_PER_S: Final = 28.0
"""A CXL 2.0 x8 gen-5 memory expander after protocol overhead (default)."""

TCP_GB_PER_S: Final = 3.0
"""One kernel TCP stream with its copies (default; vLLM and Dynamo users report 1 to 5)."""

PCIE_BOTH_WAYS: Final = 1.9
"""Both directions over one: 50 GB/s against 26.3 for an A40 pair (nccl-tests issue 74)."""

PEER_SHARE_OF_LINK: Final = 0.6
"""Peer traffic through a host bridge over what the link carries (NCCL issue 465; default)."""

CROSS_PEER_GB_PER_S: Final = 11.0
"""GPUDirect across sockets, where host to host moves 23."""

_SPEED: Final = re.compile(r"(\d+(?:\.\d+)?)\s*GT/s", re.ASCII | re.IGNORECASE)


class Card(NamedTuple):
    """What a PCI device is by its vendor and device number."""

    name: str
    gt_per_s: float
    width: int
    nvlinks: int = 0
    nvlink_generation: int = 0


#: Vendor and device number to the card. Links and widths from the vendors' data sheets.
CARDS: Final[dict[tuple[int, int], Card]] = {
    (0x10DE, 0x15F9): Card("P100-SXM2", 8.0, 16, 4, 1),
    (0x10DE, 0x1DB1): Card("V100-SXM2-16GB", 8.0, 16, 6, 2),
    (0x10DE, 0x1DB5): Card("V100-SXM2-32GB", 8.0, 16, 6, 2),
    (0x10DE, 0x1EB8): Card("T4", 8.0, 16),
    (0x10DE, 0x20B0): Card("A100-SXM4-40GB", 16.0, 16, 12, 3),
    (0x10DE, 0x20B2): Card("A100-SXM4-80GB", 16.0, 16, 12, 3),
    (0x10DE, 0x20B5): Card("A100-PCIe-80GB", 16.0, 16, 12, 3),
    (0x10DE, 0x20F1): Card("A100-PCIe-40GB", 16.0, 16, 12, 3),
    (0x10DE, 0x2235): Card("A40", 16.0, 16, 4, 3),
    (0x10DE, 0x2237): Card("A10G", 16.0, 8),
    (0x10DE, 0x26B9): Card("L40S", 16.0, 16),
    (0x10DE, 0x2330): Card("H100-SXM5-80GB", 32.0, 16, 18, 4),
    (0x10DE, 0x2331): Card("H100-PCIe", 32.0, 16, 12, 4),
    (0x10DE, 0x2335): Card("H200-SXM5-141GB", 32.0, 16, 18, 4),
    (0x10DE, 0x2342): Card("GH200", 32.0, 16, 18, 4),
    (0x10DE, 0x2901): Card("B200", 32.0, 16, 18, 5),
    (0x10DE, 0x2941): Card("GB200", 32.0, 16, 18, 5),
    (0x1002, 0x738C): Card("MI100", 16.0, 16),
    (0x1002, 0x740C): Card("MI250X", 16.0, 16),
    (0x1002, 0x74A1): Card("MI300X", 32.0, 16),
    (0x15B3, 0x1013): Card("ConnectX-4", 8.0, 16),
    (0x15B3, 0x1017): Card("ConnectX-5", 8.0, 16),
    (0x15B3, 0x101B): Card("ConnectX-6", 16.0, 16),
    (0x15B3, 0x1021): Card("ConnectX-7", 32.0, 16),
    (0x1D0F, 0xEFA0): Card("EFA", 0.0, 0),
    (0x1D0F, 0xEFA1): Card("EFA", 0.0, 0),
    (0x1D0F, 0xEFA3): Card("EFA", 0.0, 0),
    (0x1D0F, 0xEC20): Card("ENA", 0.0, 0),
}

#: Network rate of a NIC whose file does not say it, by vendor and device number (Gb/s).
NIC_GBIT: Final[dict[tuple[int, int], float]] = {
    (0x15B3, 0x1013): 100.0,
    (0x15B3, 0x1017): 100.0,
    (0x15B3, 0x101B): 200.0,
    (0x15B3, 0x1021): 400.0,
    (0x1D0F, 0xEFA0): 100.0,
    (0x1D0F, 0xEFA1): 100.0,
    (0x1D0F, 0xEFA3): 400.0,
    (0x1D0F, 0xEC20): 100.0,
}
NIC_DEFAULT_GBIT: Final = 100.0


def pcie_gb_per_s(speed: str, width: int) -> float | None:
    """Return the one-way rate of a PCIe link, or None where the text does not say it.

    Args:
        speed: As sysfs or NCCL writes it, such as ``16 GT/s`` or ``32.0 GT/s PCIe``.
        width: Lanes; 0 means unknown.
    """
    rate = gt_per_s(speed)
    if rate is None or width <= 0:
        return None
    nearest = min(PCIE_LANE_GB_PER_S, key=lambda known: abs(known - rate))
    return PCIE_LANE_GB_PER_S[nearest] * width


def gt_per_s(speed: str) -> float | None:
    """Return the number in a text such as ``16.0 GT/s PCIe``, None where there is none."""
    match = _SPEED.search(speed)
    return float(match.group(1)) if match else None


def socket_speed(vendor: str, family: int, model: int) -> tuple[float, str]:
    """Return the socket-to-socket rate that NCCL assumes for a processor, and the word for it."""
    if vendor == "AuthenticAMD":
        return SOCKET_GB_PER_S["amd"], "AMD, NCCL's assumption"
    if vendor == "GenuineIntel" and family == 6:
        if model >= 0xCF:
            return SOCKET_GB_PER_S["emerald"], "Emerald Rapids, NCCL's assumption"
        if model >= 0x8F:
            return SOCKET_GB_PER_S["sapphire"], "Sapphire Rapids, NCCL's assumption"
        return SOCKET_GB_PER_S["skylake"], "Skylake class, NCCL's assumption"
    return SOCKET_GB_PER_S["sapphire"], "processor unknown"
