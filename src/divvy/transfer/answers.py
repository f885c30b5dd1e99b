"""What an agent answers to questions of its peers; every answer may be asked for twice."""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from divvy.errors import ConflictError, DeniedError, Fault, InputError, NotFoundError
from divvy.transfer.incoming import Inbox, Incoming, now_us
from divvy.transfer.machine.cut import (
    BUDGET,
    LEAST_CHUNK,
    MOST_CHUNK,
    MOST_DESCRIPTORS,
    Descriptor,
    check,
    cut,
)
from divvy.transfer.machine.receiving import Receiving
from divvy.transfer.machine.sending import Verdict
from divvy.transfer.places import Region, inside, target_file

_MOST_LIMIT_MS: Final = 7 * 86_400_000


class Answers:
    """Opens and ends transfers that come in.

    Args:
        host: Name of this agent.
        roots: Folders that peers may read and write.
        inbox: Where transfers are.
        regions: Buffers by name; shared with the agent.
        hello: Returns what this agent says of itself.
        extra: Further questions, by verb.
        placed: Adds to the answer to ``open`` what a back end needs of the buffer.
    """

    def __init__(
        self,
        host: str,
        roots: Sequence[Path],
        inbox: Inbox,
        regions: dict[str, Region],
        hello: Callable[[], dict[str, Any]],
        extra: dict[str, Callable[[dict[str, Any], str], dict[str, Any]]],
        placed: Callable[[str, Region], dict[str, Any]],
    ) -> None:
        self._host, self._roots, self._inbox, self._regions = host, list(roots), inbox, regions
        self._placed = placed
        self._lock = threading.Lock()
        self._verbs: dict[str, Callable[[dict[str, Any], str], dict[str, Any]]] = {
            "hello": lambda _body, _sender: hello(),
            "open": self._open,
            "end": self._end,
            "beat": self._beat,
            **extra,
        }

    def __call__(self, body: dict[str, Any], sender: str) -> dict[str, Any]:
        """Return the answer to a question."""
        verb = self._verbs.get(str(body.get("verb")))
        if verb is None:
            raise InputError.one("verb", f"no question {body.get('verb')!r}", allowed=", ".join(self._verbs))
        return verb(body, sender)

    def _open(self, body: dict[str, Any], sender: str) -> dict[str, Any]:
        """Take in a transfer."""
        number, backend = int(body["transfer"]), str(body["backend"])
        with self._lock:
            known = self._inbox.get(number)
            if known is None:
                known = self._make(number, body, sender)
                self._inbox.add(known)
        return {"epoch": known.machine.epoch, **self._placed(backend, known.region)}

    def _make(self, number: int, body: dict[str, Any], sender: str) -> Incoming:
        size, limit_ms = int(body["chunk_bytes"]), int(body["limit_ms"])
        if not LEAST_CHUNK <= size <= MOST_CHUNK or not 0 < limit_ms <= _MOST_LIMIT_MS:
            raise InputError.one("open", f"chunks of {size} bytes within {limit_ms} ms")
        descriptors = _table(str(body["table"]))
        extent = max(d.target + d.size for d in descriptors)
        room = self._room(body["target"], extent)
        check(descriptors, 1 << 62, room)
        region = self._region(body["target"], extent, f"{number:016x}")
        chunks = cut(descriptors, size, BUDGET, layered=bool(body.get("layered")))
        now = now_us()
        machine = Receiving([c.size for c in chunks], region.epoch, now + limit_ms * 1000 + 2_000_000, now)
        return Incoming(number, sender, region, chunks, machine)

    def _room(self, target: dict[str, Any], extent: int) -> int:
        """Return how many bytes fit the target; refuse one that may not be written."""
        if "region" in target:
            region = self._regions.get(str(target["region"]))
            if region is None:
                shown = ", ".join(self._regions) or "none"
                raise NotFoundError.one("region-unknown", f"no buffer {target['region']!r}", allowed=shown)
            if not region.writable:
                raise DeniedError.one("region-readonly", f"peers may not write {region.name!r}")
            wanted = target.get("epoch")
            if wanted is not None and int(wanted) != region.epoch:
                text = f"{region.name!r} is in use {region.epoch}, not {wanted}"
                raise ConflictError.one("region-epoch", text)
            return region.size
        inside(str(target["file"]), self._roots)
        return extent

    def _region(self, target: dict[str, Any], extent: int, mark: str) -> Region:
        if "region" in target:
            return self._regions[str(target["region"])]
        return target_file(self._host, inside(str(target["file"]), self._roots), extent, mark)

    def _end(self, body: dict[str, Any], sender: str) -> dict[str, Any]:
        """Tell the verdict; with ``abort`` a transfer that is not done fails now."""
        del sender
        incoming = self._inbox.get(int(body["transfer"]))
        if incoming is None:
            return {"verdict": str(Verdict.FAILED), "reason": "it was never opened here"}
        if body.get("abort"):
            incoming.fail(f"the sender gave up: {body.get('reason', '')}")
            self._inbox.retire(incoming)
        machine = incoming.machine
        return {
            "verdict": str(machine.verdict or "running"),
            "reason": machine.reason,
            "accounted_bytes": machine.accounted,
            "doubled": machine.doubled,
            "corrupt": machine.corrupt,
            "moved": machine.moved,
            "target": incoming.region.place.to_json() | {"name": incoming.region.name},
        }

    def _beat(self, body: dict[str, Any], sender: str) -> dict[str, Any]:
        """Note that the sender lives."""
        del sender
        for number in body["transfers"]:
            incoming = self._inbox.get(int(number))
            if incoming is not None:
                incoming.machine.heartbeat(now_us())
        return {}


def _table(text: str) -> list[Descriptor]:
    """Return the descriptors of a table.

    Raises:
        InputError: If it is none.
    """
    try:
        raw = base64.b64decode(text, validate=True)
        table = np.frombuffer(raw, dtype="<i8").reshape(-1, 3)
    except (binascii.Error, ValueError) as error:
        raise InputError(
            "a table of descriptors is damaged", [Fault("table", "table", str(error))]
        ) from error
    if not 0 < len(table) <= MOST_DESCRIPTORS:
        raise InputError.one("descriptors", f"{len(table)} descriptors", allowed=f"1 to {MOST_DESCRIPTORS}")
    return [Descriptor(*row) for row in table.tolist()]
