"""What to set in today's stacks so that they do what the topology allows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from divvy.errors import InputError
from divvy.fleet.topology.graph import Kind
from divvy.fleet.topology.reading import RANK
from divvy.planners.transfers.candidates import Finder, affine, distance, nics_of
from divvy.planners.transfers.peers.fabric_lib import own_nics
from divvy.planners.transfers.roads import Roads


def advise(ways: Roads, stack: str) -> dict[str, Any]:
    """Return the ``divvy.route.config/1`` document of a stack.

    Raises:
        InputError: If the stack is unknown; the fault lists the valid ones.
    """
    if stack not in STACKS:
        raise InputError.one("stack-unknown", f"no stack {stack!r}", path="--for", allowed=", ".join(STACKS))
    settings, text = STACKS[stack](ways)
    return {
        "schema": "divvy.route.config/1",
        "topology": ways.topo.name,
        "for": stack,
        "settings": settings,
        "text": text,
        "warnings": [finding.to_json() for finding in ways.topo.findings],
    }


def _system(ways: Roads, nic: str) -> str:
    """Return the system's name of a NIC."""
    return ways.topo.vertices[nic].name or nic


def _data_nics(ways: Roads) -> list[str]:
    """Return the NICs worth using: RDMA, not slower than half the fastest, nearest to some GPU."""
    gpus = [v.id for v in ways.topo.of_kind(Kind.GPU)]
    near = {nic for gpu in gpus for nic in affine(ways, gpu)}
    order = [v.id for v in ways.topo.of_kind(Kind.NIC)]
    rate = {
        link.a: link.gb_per_s for link in ways.topo.links if link.a in near and link.b.startswith("fabric")
    }
    fastest = max(rate.values(), default=0.0)
    return [nic for nic in order if nic in near and rate.get(nic, fastest) >= fastest / 2]


def _vllm_nixl(ways: Roads) -> tuple[dict[str, Any], list[str]]:
    """UCX chooses NICs by constants; naming them per rank is the only way to have the right ones."""
    ranks: dict[str, dict[str, str]] = {}
    finder = Finder(ways)
    gpus = [v.id for v in ways.topo.of_kind(Kind.GPU)]
    has_mesh = any(c.kind == "nvlink" for a in gpus[:1] for b in gpus[1:2] for c in finder.between(a, b))
    for gpu in gpus:
        nics = own_nics(ways, gpu)
        names = ",".join(f"{_system(ways, n)}:1" for n in nics)
        tls = "cuda_ipc,cuda_copy,rc,sm,self" if has_mesh else "cuda_copy,rc,sm,self"
        ranks[gpu] = {
            "UCX_NET_DEVICES": names or "all",
            "UCX_TLS": tls,
            "UCX_MAX_RMA_RAILS": str(max(1, len(nics))),
            "UCX_MAX_RNDV_RAILS": str(max(1, len(nics))),
        }
    text = [
        "# one process per GPU; set these for the process that owns it",
        "# GPU numbers are physical: a CUDA_VISIBLE_DEVICES that renumbers shifts them (nixl issue 1149)",
    ]
    for gpu, values in ranks.items():
        text.append(
            f"# {gpu}" + ("" if values["UCX_NET_DEVICES"] != "all" else ": no NIC is near; UCX decides")
        )
        text += [f"export {key}={value}" for key, value in values.items()]
    text.append(
        "# prefer writes where NVLink carries them: vLLM's NixlPushConnector (vLLM issue 52607)"
        if has_mesh
        else ""
    )
    return {"ranks": ranks}, [line for line in text if line]


def _mooncake(ways: Roads) -> tuple[dict[str, Any], list[str]]:
    """Mooncake reads a NIC priority matrix: memory location to preferred and available NICs."""
    matrix: dict[str, list[list[str]]] = {}
    for numa in ways.topo.of_kind(Kind.NUMA):
        mine = [v for v in ways.topo.of_kind(Kind.NIC) if dict(v.facts).get("transport") != "tcp"]
        near = [_system(ways, v.id) for v in mine if v.numa == numa.numa]
        matrix[f"cpu:{numa.numa if numa.numa is not None else numa.id}"] = [
            near or [_system(ways, v.id) for v in mine],
            [_system(ways, v.id) for v in mine if near and v.numa != numa.numa],
        ]
    for i, gpu in enumerate(ways.topo.of_kind(Kind.GPU)):
        near = own_nics(ways, gpu.id)
        rest = [n for n in nics_of(ways, gpu.id) if n not in near and distance(ways, gpu.id, n) < RANK["SYS"]]
        matrix[f"cuda:{i}"] = [[_system(ways, n) for n in near], [_system(ways, n) for n in rest]]
    text = json.dumps(matrix)
    return {"nic_priority_matrix": matrix}, [
        "# the argument nic_priority_matrix of TransferEngine.installTransport, or MC_CUSTOM_TOPO_JSON=FILE",
        text,
    ]


def _nccl(ways: Roads) -> tuple[dict[str, Any], list[str]]:
    """NCCL finds most by itself; what it cannot know is which NICs to leave out."""
    nics = _data_nics(ways)
    values: dict[str, str] = {}
    if nics:
        values["NCCL_IB_HCA"] = "=" + ",".join(_system(ways, n) for n in nics)
    gpus = [v.id for v in ways.topo.of_kind(Kind.GPU)]
    worst = max((min((distance(ways, g, n) for n in nics), default=9) for g in gpus), default=9)
    if nics:
        # Through the processor GPUDirect is slower than staging (NCCL issue 465): switches only.
        values["NCCL_NET_GDR_LEVEL"] = "PXB" if worst <= RANK["SYS"] else "PIX"
    codes = {f.code for f in ways.topo.findings}
    if "vm-flattened" in codes or "numa-unknown" in codes:
        values["NCCL_TOPO_FILE"] = "/path/to/the/provider's/topology.xml"
    if not ways.topo.peering.allowed:
        values["NCCL_P2P_DISABLE"] = "1"
    if "rails-apart" in codes:
        values["NCCL_CROSS_NIC"] = "0"
    return {"environment": values}, [
        f'export {key}="{value}"' if value.startswith("=") else f"export {key}={value}"
        for key, value in values.items()
    ]


def _dynamo(ways: Roads) -> tuple[dict[str, Any], list[str]]:
    """Dynamo places by labels: give each NVLink domain one, and keep GPUs that have lost NVLink out of it."""
    domains: dict[str, list[str]] = {}
    for gpu in ways.topo.of_kind(Kind.GPU):
        plane = next(
            (k.b for k in ways.topo.links if k.a == gpu.id and ways.topo.vertices[k.b].kind is Kind.NVSWITCH),
            "",
        )
        name = gpu.domain or plane or gpu.machine or "machine"
        machine = gpu.machine or "this-node"
        if machine not in domains.setdefault(name, []):
            domains[name].append(machine)
    labels = [
        {"nodes": nodes, "label": f"nvidia.com/gpu.clique={name.replace(':', '-')}"}
        for name, nodes in domains.items()
    ]
    off = [f.where for f in ways.topo.findings if f.code == "gpu-off-nvlink"]
    taints = [{"gpus": where, "taint": "divvy.dev/nvlink=lost:NoSchedule"} for where in off]
    text = [f"kubectl label node {node} {entry['label']}" for entry in labels for node in entry["nodes"]]
    text += [f"kubectl taint node NODE {t['taint']}   # {t['gpus']} lost NVLink" for t in taints]
    return {"labels": labels, "taints": taints}, text


STACKS: Final[dict[str, Callable[[Roads], tuple[dict[str, Any], list[str]]]]] = {
    "vllm-nixl": _vllm_nixl,
    "mooncake": _mooncake,
    "nccl": _nccl,
    "dynamo": _dynamo,
}
