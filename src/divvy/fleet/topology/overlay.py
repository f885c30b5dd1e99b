"""Numbers laid over a picture: port rates (`ibstat`), measured matrices, peer support."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from divvy.fleet.topology.graph import Finding, Kind, LinkKind, Origin, Source
from divvy.fleet.topology.pcitree import FABRIC
from divvy.fleet.topology.reading import Reading


def apply_ports(base: Reading, reading: Reading, findings: list[Finding]) -> None:
    """Set the network rate of NICs from the ports that were read."""
    if not reading.nic_gb_per_s:
        return
    by_name = {v.name or v.id: v.id for v in base.vertices.values() if v.kind is Kind.NIC}
    layers: dict[str, str] = {}
    for device, rate in reading.nic_gb_per_s.items():
        nic = by_name.get(device) or (device if device in base.vertices else None)
        if nic is None:
            findings.append(
                Finding(
                    "nic-unknown", device, f"{reading.name} names a NIC that no picture has", "add its matrix"
                )
            )
            continue
        layers[nic] = reading.facts.get(f"{device}.link layer", "")
        source = Source(Origin.WIDTH, f"port rate {rate * 8:g} Gb/s", reading.name)
        base.links = [
            replace(link, gb_per_s=rate, source=source) if link.a == nic and link.b == FABRIC else link
            for link in base.links
        ]
    kinds = {layer for layer in layers.values() if layer}
    if len(kinds) > 1:
        _split_fabric(base, layers)


def _split_fabric(base: Reading, layers: dict[str, str]) -> None:
    """Give each link layer its own network: Ethernet and InfiniBand ports cannot reach each other."""
    first = next(layer for layer in layers.values() if layer)
    for nic, layer in layers.items():
        if layer and layer != first:
            other = f"{FABRIC}-{layer.lower()}"
            base.vertices.setdefault(other, replace(base.vertices[FABRIC], id=other))
            base.links = [
                replace(link, b=other) if link.a == nic and link.b == FABRIC else link for link in base.links
            ]


def apply_measured(base: Reading, reading: Reading, findings: list[Finding]) -> None:
    """Set the rate of GPU links from a measured matrix.

    A pair's own NVLinks take the pair's figure; a link into a switch or the PCIe tree takes the best
    figure that its GPU reached, because a pair's figure may be limited by the other end.
    """
    if not reading.measured:
        return
    unknown = sorted({gpu for pair in reading.measured for gpu in pair} - set(base.vertices))
    if unknown:
        findings.append(
            Finding(
                "gpu-unknown",
                ", ".join(unknown),
                f"{reading.name} names GPUs that no picture has",
                "add its matrix",
            )
        )
    best: dict[str, float] = {}
    for (a, b), rate in reading.measured.items():
        best[a], best[b] = max(best.get(a, 0.0), rate), max(best.get(b, 0.0), rate)
    nvlinked = {end for link in base.links if link.kind is LinkKind.NVLINK for end in (link.a, link.b)}
    out = []
    for link in base.links:
        pair = reading.measured.get((link.a, link.b)) or reading.measured.get((link.b, link.a))
        new = None
        if link.kind is LinkKind.NVLINK:
            new = pair if pair is not None else best.get(link.a)
        elif link.kind is LinkKind.PCIE and link.a in best and link.a not in nvlinked:
            new = best[link.a]
        if new is not None:
            out.append(
                replace(link, gb_per_s=new, source=Source(Origin.MEASURED, f"{new:g} GB/s", reading.name))
            )
            if new < 0.5 * link.gb_per_s:
                findings.append(
                    Finding(
                        "slow-link",
                        f"{link.a} - {link.b}",
                        f"{new:g} GB/s measured where {link.source.text} promises {link.gb_per_s:g}",
                        "nvidia-smi nvlink --status; lspci -vv for the PCIe width; run it again on "
                        "an idle machine",
                    )
                )
        else:
            out.append(link)
    base.links = out


def apply_peers(base: Reading, readings: Sequence[Reading]) -> bool:
    """Mark GPUs without peer-to-peer; return whether the machine has any."""
    allowed = {pair: ok for reading in readings for pair, ok in reading.peer_allowed.items()}
    if not allowed:
        return True
    for name, vertex in base.vertices.items():
        mine = [ok for pair, ok in allowed.items() if name in pair]
        if vertex.kind is Kind.GPU and mine:
            base.vertices[name] = replace(vertex, peer=any(mine))
    return any(allowed.values())
