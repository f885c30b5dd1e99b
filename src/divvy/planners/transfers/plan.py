"""Transfers, routes and plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from divvy.errors import Fault, InputError
from divvy.planners.transfers.roads import Path
from divvy.units import parse_bytes, parse_duration

MOST_BYTES: Final = 2**60
_MOST_SECONDS: Final = 1e10


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes to be moved.

    Attributes:
        id: Unique name.
        source: Vertex they are at.
        target: Vertex they go to.
        size_bytes: How many.
        release_s: When they may start.
        deadline_s: When they should be there; None means as soon as possible.
        descriptors: Pieces that they lie in.
    """

    id: str
    source: str
    target: str
    size_bytes: int
    release_s: float = 0.0
    deadline_s: float | None = None
    descriptors: int = 1


@dataclass(frozen=True, slots=True)
class Flow:
    """A part of a transfer on one path.

    Attributes:
        transfer: Index of the transfer.
        kind: Kind of route.
        path: The path.
        size_bytes: Bytes of this part.
        weight: Share in the max-min fair rates.
        start_s: When its bytes begin to move, start-up included.
        limit_gb_per_s: Highest rate, ``inf`` for none.
        coalesce: Whether its pieces are gathered first.
    """

    transfer: int
    kind: str
    path: Path
    size_bytes: float
    weight: float
    start_s: float
    limit_gb_per_s: float = float("inf")
    coalesce: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A transfer that cannot be planned, and why."""

    transfer: str
    code: str
    text: str


@dataclass(slots=True)
class RoutePlan:
    """What a planner decided.

    Attributes:
        planner: Its name.
        flows: Parts on paths.
        refused: Transfers without a route.
        notes: What it says about itself.
    """

    planner: str
    flows: list[Flow] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_transfers(name: str, document: Any) -> list[Transfer]:
    """Return the transfers of a JSON document: a list, or an object with ``transfers``.

    Each has ``id`` (optional), ``from``, ``to``, ``bytes`` (a number, or text such as ``"1.3GB"``),
    and optionally
    ``release_s``, ``deadline_s`` (numbers or durations), ``descriptors``. Aliases: ``source``/``src``/``a``,
    ``target``/``dst``/``b``, ``size``/``size_bytes``, ``release``, ``deadline``.

    Raises:
        InputError: With every fault of the document.
    """
    entries = document.get("transfers") if isinstance(document, dict) else document
    if not isinstance(entries, list) or not entries:
        raise InputError.one(
            "transfers-empty", f"{name} holds no list of transfers", path=name, allowed='{"transfers": [...]}'
        )
    faults: list[Fault] = []
    out: list[Transfer] = []
    seen: set[str] = set()
    for position, entry in enumerate(entries):
        where = f"{name}:transfers[{position}]"
        if not isinstance(entry, dict):
            faults.append(Fault("transfer", where, f"{entry!r} is not an object"))
            continue
        transfer = _one(entry, position, where, faults)
        if transfer is None:
            continue
        if transfer.id in seen:
            faults.append(Fault("transfer-twice", where, f"the id {transfer.id!r} is there twice"))
        seen.add(transfer.id)
        out.append(transfer)
    if faults:
        raise InputError(f"{name} has {len(faults)} fault{'s' if len(faults) > 1 else ''}", faults)
    return out


def _one(entry: dict[str, Any], position: int, where: str, faults: list[Fault]) -> Transfer | None:
    """Return one transfer, or None after adding its faults."""

    def pick(*names: str, default: Any = None) -> Any:
        return next((entry[name] for name in names if entry.get(name) is not None), default)

    before = len(faults)
    source, target = pick("from", "source", "src", "a"), pick("to", "target", "dst", "b")
    for key, value in (("from", source), ("to", target)):
        if not isinstance(value, str) or not value:
            faults.append(
                Fault(
                    "transfer",
                    f"{where}.{key}",
                    f"{value!r} is not a place",
                    fix="use ids of divvy topo show",
                )
            )
    size = _bytes(pick("bytes", "size_bytes", "size"), f"{where}.bytes", faults)
    release = _seconds(pick("release_s", "release", default=0.0), f"{where}.release_s", faults)
    deadline = pick("deadline_s", "deadline")
    due = _seconds(deadline, f"{where}.deadline_s", faults) if deadline is not None else None
    pieces = pick("descriptors", default=1)
    if isinstance(pieces, bool) or not isinstance(pieces, int) or pieces < 1:
        faults.append(
            Fault("transfer", f"{where}.descriptors", f"{pieces!r} is not a whole number of at least 1")
        )
    if due is not None and due <= release:
        faults.append(Fault("transfer", f"{where}.deadline_s", f"{due} is not after the release {release}"))
    if len(faults) > before:
        return None
    return Transfer(
        str(pick("id", "name", default=f"t{position}")), str(source), str(target), size, release, due, pieces
    )


def _bytes(value: Any, where: str, faults: list[Fault]) -> int:
    """Return bytes from a number or text."""
    try:
        size = parse_bytes(value) if isinstance(value, str) and not value.isdigit() else int(value)
        if isinstance(value, bool) or not 0 < size <= MOST_BYTES:
            raise ValueError(f"{value!r} is not a number of bytes from 1 to 1 EiB")  # noqa: TRY301 - one way to report it
    except (TypeError, ValueError, OverflowError) as error:
        faults.append(
            Fault("transfer", where, str(error), "a positive number of bytes, or text such as 1.3GB")
        )
        return 0
    return size


def _seconds(value: Any, where: str, faults: list[Fault]) -> float:
    """Return seconds from a number or a duration."""
    try:
        seconds = parse_duration(value) / 1000.0 if isinstance(value, str) else float(value)
        if isinstance(value, bool) or not 0 <= seconds < _MOST_SECONDS:
            raise ValueError(f"{value!r} is not a time in seconds")  # noqa: TRY301 - one way to report it
    except (TypeError, ValueError) as error:
        faults.append(Fault("transfer", where, str(error), "seconds as a number, or text such as 20ms"))
        return 0.0
    return seconds


def resolve(ends: Any, transfers: Sequence[Transfer]) -> list[Transfer]:
    """Return the transfers with their places as vertex ids.

    Args:
        ends: A `Roads`; only its `end` is used.
        transfers: As they were read.

    Raises:
        InputError: With one fault for each place that does not exist.
    """
    out, faults = placed(ends, transfers)
    if faults:
        raise InputError("some transfers cannot be placed", faults)
    return out


def placed(ends: Any, transfers: Sequence[Transfer]) -> tuple[list[Transfer], list[Fault]]:
    """Return the transfers that have both places here, with vertex ids; and a fault for each other place."""
    faults: list[Fault] = []
    out: list[Transfer] = []
    for transfer in transfers:
        names: list[str] = []
        for text, source in ((transfer.source, True), (transfer.target, False)):
            try:
                names.append(ends.end(text, source=source))
            except InputError as error:
                faults.extend(
                    Fault(f.code, f"{transfer.id}.{f.path}", f.message, f.allowed, f.fix)
                    for f in error.faults
                )
        if len(names) == 2 and names[0] == names[1]:
            faults.append(Fault("transfer", transfer.id, f"it goes from {names[0]} to itself"))
        elif len(names) == 2:
            out.append(
                Transfer(
                    transfer.id,
                    names[0],
                    names[1],
                    transfer.size_bytes,
                    transfer.release_s,
                    transfer.deadline_s,
                    transfer.descriptors,
                )
            )
    return out, faults
