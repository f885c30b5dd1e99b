"""Proof of path: what the interfaces counted beside what the transfer says of its rails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from divvy.transfer.interfaces import Passed

#: Headers, acknowledgements and retransmissions add to the payload; less than the payload is a lie.
_LEAST: Final = 0.98
_MOST: Final = 1.25
_ROUND_BYTES: Final = 512 << 10
_STRAY: Final = 0.03


def prove(
    devices: Mapping[str, str],
    payload: Mapping[str, int],
    before: Mapping[str, Passed],
    after: Mapping[str, Passed],
    planned: tuple[str, ...],
    *,
    repeated_bytes: int,
) -> dict[str, Any]:
    """Return what each rail's interface counted beside what was to go over it, and whether they agree.

    Args:
        devices: Network device by route.
        payload: Bytes that this agent gave to each route meanwhile, all transfers together.
        before: Counters at the start.
        after: Counters at the end.
        planned: Routes that the planner chose.
        repeated_bytes: Most that attempts which were given up may have left in a socket or sent in part; with
            any, healing may have taken routes that the plan did not name.
    """
    rows, mismatches = [], []
    total = max(1, sum(payload.values()))
    for route, device in devices.items():
        given = payload.get(route, 0)
        shared = sum(payload.get(other, 0) for other, d in devices.items() if d == device)
        passed = after.get(device, Passed(0, 0)).sent - before.get(device, Passed(0, 0)).sent
        rows.append(
            {"route": route, "device": device, "payload_bytes": given, "interface_bytes": passed}
            | {"planned": route in planned}
        )
        if passed < _LEAST * shared - repeated_bytes:
            mismatches.append(
                f"{route}: {given} bytes were given to it, but {device} counted only {passed} bytes out"
            )
        if passed > _MOST * shared + _ROUND_BYTES + _STRAY * total + repeated_bytes:
            mismatches.append(f"{route}: {device} counted {passed} bytes out, {shared} were given to it")
        if given and route not in planned and not repeated_bytes:
            mismatches.append(f"{route}: {given} bytes went over it, and it is not in the plan")
    return {
        "method": "interface counters of the sender (/proc/self/net/dev)",
        "agrees": not mismatches,
        "rails": rows,
        "mismatches": mismatches,
    }
