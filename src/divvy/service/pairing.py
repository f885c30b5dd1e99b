"""The desk where pairs are given out: it remembers what is on the way, so that the next pair avoids it."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from divvy.errors import NotFoundError, UnavailableError

if TYPE_CHECKING:
    from divvy.planners.transfers.candidates import Finder
    from divvy.planners.transfers.plan import Transfer
    from divvy.planners.transfers.roads import Roads

#: Transfers that are counted as on the way at once; the oldest are forgotten first.
MOST_OPEN: Final = 1024


@dataclass(frozen=True, slots=True)
class _Open:
    """A transfer on the way: between these times (monotonic seconds) its bytes go down evenly."""

    transfer: Transfer
    began: float
    ends: float

    def left(self, now: float) -> Transfer | None:
        """Return the transfer with the bytes that are left, None where nothing is."""
        share = min(1.0, (self.ends - now) / max(self.ends - self.began, 1e-9))
        size = int(self.transfer.size_bytes * share)
        return replace(self.transfer, size_bytes=size) if size > 0 else None


class PairingDesk:
    """Gives out pairs; safe to call from several threads.

    What is on the way is an estimate: a transfer is counted until its predicted end, or until somebody says
    that it is over. It is kept in memory only; a restart forgets it, which costs a few worse pairs.

    Args:
        interconnect: Reads the roads; None where no topology is configured.
        clock: Monotonic seconds.
    """

    def __init__(
        self, interconnect: Callable[[], Roads] | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interconnect = interconnect
        self._clock = clock
        self._lock = threading.Lock()
        self._finder: Finder | None = None
        self._open: dict[str, _Open] = {}

    def pair(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the pair of a request as ``divvy.pair/1``, and count it unless ``reserve`` is false.

        Raises:
            DivvyError: If no topology is configured, a place is unknown or no pair has a route.
        """
        from divvy.planners.transfers import matching  # noqa: PLC0415 - NumPy: only who pairs pays for it
        from divvy.planners.transfers.candidates import Finder  # noqa: PLC0415 - same

        if self._interconnect is None:
            raise UnavailableError.one(
                "topology-unset",
                "no topology is configured, so nothing is known of the ways between places",
                fix="start the control plane with divvy up --topology FILE",
            )
        with self._lock:
            ways = self._interconnect()
            if self._finder is None or self._finder.ways is not ways:
                self._finder, self._open = Finder(ways), {}
            now = self._clock()
            ask = matching.read_ask(ways, body)
            moving = self._moving(now)
            tried = matching.tried_pairs(ways, self._finder, ask, moving)
            name = uuid.uuid4().hex[:16]
            best = tried[0]
            document = matching.pair_document(ways, ask, tried)
            if best.transfer is not None and body.get("reserve", True):
                began = now + best.waited_s
                self._open[name] = _Open(best.transfer, began, now + (best.predicted_s or 0.0))
                while len(self._open) > MOST_OPEN:
                    del self._open[next(iter(self._open))]
        more = {"id": name, "moving": len(moving), "settings": matching.settings_of(ways, best)}
        return document | more

    def done(self, name: str) -> None:
        """Forget a transfer that is over.

        Raises:
            NotFoundError: If it is not counted (any more).
        """
        with self._lock:
            if self._open.pop(name, None) is None:
                raise NotFoundError.one(
                    "pair-unknown",
                    f"no pair {name!r} is counted as on the way",
                    path="id",
                    fix="nothing is left to do: past its predicted end a pair is forgotten by itself",
                )

    def _moving(self, now: float) -> list[Transfer]:
        """Return what is on the way; forget what is over."""
        left = {name: entry.left(now) for name, entry in self._open.items()}
        self._open = {name: entry for name, entry in self._open.items() if left[name] is not None}
        return [transfer for transfer in left.values() if transfer is not None]
