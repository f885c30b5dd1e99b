"""The answer of /v1/status: rendered once per state of the mirror, and of that only what changed.

An open page asks for it whenever something moves. On a fleet of 10,000 devices the whole text is a megabyte,
while little of it is new; so the text of every node is kept with what it was made of.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

from divvy.control.board import Board, JobSight
from divvy.control.view import NodeSight
from divvy.fleet.job import Phase
from divvy.fleet.node import NodeState
from divvy.service.answers import dump
from divvy.service.mirror import DeviceSight, Mirror
from divvy.service.render import accounts
from divvy.units import SECOND

NOT_MEASURED: Final = "no monitor reports the utilisation of this node"
_EMPTY: Final = {NodeState.UP: "free", NodeState.DRAINING: "draining", NodeState.DOWN: "down"}

_Runs = Sequence[tuple[JobSight, int]]


class StatusPage:
    """Renders the fleet at a glance.

    Args:
        mirror: What is shown.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._kept: dict[str, tuple[Hashable, bytes]] = {}

    def render(self, now: int) -> bytes:
        """Return the answer without its age.

        Raises:
            UnavailableError: If nothing was published yet.
        """
        view, tree = self._mirror.seen(), self._mirror.in_force().budget.tree
        board, devices = self._mirror.board, self._mirror.devices
        by_node, held = _runs_by_node(board)
        kept: dict[str, tuple[Hashable, bytes]] = {}
        for sight in view.nodes:
            name = sight.node.name
            runs, reported = by_node.get(name, ()), devices.get(name)
            basis = (
                sight,
                tuple((run.spec.id, count, run.label(now)) for run, count in runs),
                None if reported is None else tuple(reported),
            )
            old = self._kept.get(name)
            same = old is not None and old[0] == basis
            kept[name] = (
                old if same and old is not None else (basis, _node(sight, runs, reported, board, now))
            )
        self._kept = kept
        head = dump(
            {
                "schema": "divvy.status/1",
                "version": view.version,
                "policy": view.planner,
                "totals": {
                    "gpus": sum(s.node.gpus for s in view.nodes if s.node.state is not NodeState.DOWN),
                    "used": held[True] + held[False],
                    "allocated": held[True],
                    "unallocated": held[False],
                    "free": sum(sight.free for sight in view.nodes),
                    "queued": board.waiting,
                    "running": len(board.running),
                },
                "accounts": accounts(tree, view),
            }
        )
        return head[:-1] + b',"nodes":[' + b",".join(text for _, text in kept.values()) + b"]}"


def _runs_by_node(board: Board) -> tuple[Mapping[str, _Runs], Mapping[bool, int]]:
    """Return the runs on each node, and the devices held by allocated (True) and unallocated jobs."""
    by_node: dict[str, list[tuple[JobSight, int]]] = {}
    held = {True: 0, False: 0}
    for run in board.running.values():
        for node, gpus in run.placement:
            by_node.setdefault(node, []).append((run, gpus))
            if run.phase is not Phase.STOPPING:
                held[run.spec.allocated] += gpus
    return by_node, held


def _node(
    sight: NodeSight, runs: _Runs, reported: Sequence[DeviceSight] | None, board: Board, now: int
) -> bytes:
    node = sight.node
    if reported is None:
        reported = _in_order(node.gpus, runs)
    return dump(
        {
            "name": node.name,
            "model": node.model,
            "gpus": node.gpus,
            "free": sight.free,
            "state": node.state.name.lower(),
            "cause": node.cause,
            "maintenance": None
            if sight.window is None
            else {
                "from_at": sight.window.start / SECOND,
                "until_at": sight.window.end / SECOND if sight.window.end else None,
                "cause": sight.window.cause,
            },
            "domain": node.domain,
            "cluster": node.cluster,
            "devices": [_device(device, board.jobs, _EMPTY[node.state], now) for device in reported],
        }
    )


def _in_order(gpus: int, runs: _Runs) -> list[DeviceSight]:
    """Return a node's devices where the engine does not say whose is which: filled in order of start."""
    owners = [
        run.spec.id
        for run, count in sorted(runs, key=lambda pair: (pair[0].started or 0, pair[0].spec.id))
        for _ in range(count)
    ]
    owners = owners[:gpus]
    padded = [*owners, *[None] * (gpus - len(owners))]
    return [DeviceSight(index, owner, None, NOT_MEASURED) for index, owner in enumerate(padded)]


def _device(device: DeviceSight, jobs: Mapping[str, JobSight], empty: str, now: int) -> dict[str, Any]:
    run = jobs.get(device.job) if device.job is not None else None
    known = device.utilisation is not None
    return {
        "index": device.index,
        "job": run.spec.id if run is not None else None,
        "account": run.spec.account if run is not None else None,
        "state": run.label(now) if run is not None else empty,
        "utilisation": device.utilisation,
        "utilisation_reason": None if known else device.reason or NOT_MEASURED,
    }
