"""Another agent as this one sees it: the routes to it, what is on the way, what it says at the end."""

from __future__ import annotations

import base64
import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from divvy.errors import DivvyError, UnavailableError
from divvy.planners.transfers.rails import Choice, choose
from divvy.transfer.backends.port import Mover
from divvy.transfer.calibration import Calibration
from divvy.transfer.control import Control
from divvy.transfer.dial import Route
from divvy.transfer.incoming import now_us
from divvy.transfer.interfaces import counters
from divvy.transfer.link import Link
from divvy.transfer.machine.cut import BUDGET, Descriptor, check, chunk_bytes, cut
from divvy.transfer.machine.rails import Rail
from divvy.transfer.machine.sending import Sending, Verdict
from divvy.transfer.metrics import Metrics
from divvy.transfer.outgoing import Outgoing, Wish
from divvy.transfer.places import Region
from divvy.transfer.report import report
from divvy.transfer.scheduler import Scheduler
from divvy.transfer.wire import Line

STARTUP_S: Final = 0.0005
_TICK_S: Final = 0.025
_BEAT_S: Final = 2.0
_LEAST_LIMIT_S: Final = 10.0


class Handle:
    """A transfer under way.

    Args:
        outgoing: The transfer.
        peer: Where it goes.
    """

    def __init__(self, outgoing: Outgoing, peer: Peer) -> None:
        self._outgoing, self._peer = outgoing, peer
        self._told = threading.Event()
        self._report: dict[str, Any] = {}

    @property
    def number(self) -> int:
        """Return the number of the transfer, the same on both sides."""
        return self._outgoing.number

    def release(self, descriptors: int) -> None:
        """Let the first `descriptors` descriptors be sent (of a layered transfer)."""
        self._peer.scheduler.release(self._outgoing, descriptors)

    def cancel(self) -> None:
        """End the transfer; the other side hears of it."""
        self._peer.scheduler.fail(self._outgoing, "it was cancelled")

    def wait(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the report (``divvy.move/1``) once both sides have a verdict; the source is free then.

        Raises:
            TimeoutError: If that takes longer than `timeout_s`.
        """
        if not self._told.wait(timeout_s):
            raise TimeoutError(f"transfer {self.number:x} has no verdict after {timeout_s} s")
        return self._report

    def tell(self, report: dict[str, Any]) -> None:
        """Set the report."""
        self._report = report
        self._told.set()


class Peer:
    """One other agent.

    Args:
        name: Its name.
        routes: Ways to it.
        control: Asks it.
        key: The shared key.
        sender: Name of this agent.
        calibration: What is known of its routes.
        metrics: Counts.
        make: Makes the back end of a rail, by back end's name.
        backend: Back end of this peer's rails.
    """

    def __init__(
        self,
        name: str,
        routes: Sequence[Route],
        control: Control,
        key: bytes,
        sender: str,
        calibration: Calibration,
        metrics: Metrics,
        make: Callable[[Line, Route], Mover],
        backend: str,
    ) -> None:
        self.name, self.routes, self.control, self.backend = name, list(routes), control, backend
        self.sender, self._calibration, self._metrics = sender, calibration, metrics
        self.scheduler = Scheduler([r.name for r in routes], self._on_end)
        self._handles: dict[int, Handle] = {}
        self._over: queue.SimpleQueue[Outgoing | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._prime()
        self.links = {r.name: Link(r, key, sender, self.scheduler, make) for r in routes}
        self._threads = [
            threading.Thread(target=run, name=f"{run.__name__} {name}", daemon=True)
            for run in (self._tick, self._finish, self._beat)
        ]

    def start(self, timeout_s: float = 2.0) -> None:
        """Connect every rail; wait until one stands, and a moment for the others."""
        for link in self.links.values():
            link.start()
        for thread in self._threads:
            thread.start()
        start = time.monotonic()
        while time.monotonic() < start + timeout_s:
            up = sum(rail.up for rail in self.scheduler.rails.values())
            if up == len(self.links) or (up and time.monotonic() > start + 0.7):
                return
            time.sleep(0.002)

    def _prime(self) -> None:
        """Begin with the rates that were learned of single rails."""
        for rails, model in self._calibration.models(self.name, self.backend).items():
            if len(rails) == 1 and rails[0] in self.scheduler.rails:
                self.scheduler.rails[rails[0]].rate = 1e-6 / float(model.coefficients()[2])

    def send(
        self, region: Region, target: dict[str, Any], descriptors: Sequence[Descriptor], wish: Wish
    ) -> Handle:
        """Begin a transfer.

        Raises:
            InputError: If the descriptors do not fit.
            DivvyError: What the other side refused with.
        """
        began = now_us()
        table = np.array(descriptors, dtype=np.int64).reshape(-1, 3)
        total = int(table[:, 2].sum())
        size = chunk_bytes(total)
        check(descriptors, region.size, 1 << 62)
        chunks = cut(descriptors, size, BUDGET, layered=wish.layered)
        pieces = sum(len(chunk.fragments) for chunk in chunks)
        choice = self._choose(total, pieces, len(chunks))
        limit_s = wish.limit_s or max(_LEAST_LIMIT_S, 20 * choice.prediction.high)
        number = secrets.randbits(63)
        opened = self._open(number, target, table, size, limit_s, wish)
        machine = Sending(
            [chunk.size for chunk in chunks],
            self.scheduler.rails,
            began,
            began + int(limit_s * 1e6),
            frozenset(choice.rails),
            released=0 if wish.layered else -1,
        )
        outgoing = Outgoing(
            number, region, chunks, machine, wish, int(opened["epoch"]), len(descriptors),
            choice.prediction, choice.rails, began, pieces, facts=opened,
        )  # fmt: skip
        outgoing.before = counters()
        outgoing.own_before = {name: link.sent_bytes for name, link in self.links.items()}
        handle = self._handles[number] = Handle(outgoing, self)
        self.scheduler.add(outgoing)
        return handle

    def _open(
        self,
        number: int,
        target: dict[str, Any],
        table: NDArray[np.int64],
        size: int,
        limit_s: float,
        wish: Wish,
    ) -> dict[str, Any]:
        """Tell the other side what will come; return what it says of its buffer."""
        return self.control.ask(
            "open",
            {
                "transfer": number,
                "target": target,
                "table": base64.b64encode(table.astype("<i8").tobytes()).decode(),
                "chunk_bytes": size,
                "layered": wish.layered,
                "limit_ms": int(limit_s * 1000),
                "account": wish.account,
                "backend": self.backend,
            },
        )

    def _choose(self, total: int, pieces: int, chunks: int) -> Choice:
        rates = {name: rail.rate * 1e6 for name, rail in self.scheduler.rails.items() if rail.usable}
        if not rates:  # a rail may come back; healing decides what becomes of the transfer
            rates = {name: rail.rate * 1e6 for name, rail in self.scheduler.rails.items()}
        models = self._calibration.models(self.name, self.backend)
        choice = choose(rates, models, total, pieces, STARTUP_S, most=chunks)
        if choice is None:
            raise UnavailableError.one("no-route", f"no rail reaches {self.name}")
        return choice

    def _on_end(self, outgoing: Outgoing) -> None:
        self._over.put(outgoing)

    def _finish(self) -> None:
        """Tell the other side the verdict, hear its own, write the report."""
        while (outgoing := self._over.get()) is not None:
            machine = outgoing.machine
            theirs: dict[str, Any]
            try:
                abort = machine.verdict is not Verdict.DONE
                body = {"transfer": outgoing.number, "abort": abort, "reason": machine.reason}
                theirs = self.control.ask("end", body, timeout_s=1.0)
            except DivvyError as error:
                theirs = {"verdict": "unknown", "reason": str(error)}
            if theirs.get("verdict") == Verdict.DONE and machine.verdict is Verdict.FAILED:
                machine.verdict, machine.reason = Verdict.DONE, ""
            payload = {n: link.sent_bytes - outgoing.own_before[n] for n, link in self.links.items()}
            document = report(self, outgoing, theirs, payload, counters())
            if outgoing.alone and not machine.counts.retries and machine.verdict is Verdict.DONE:
                self._calibration.observe(
                    self.name, self.backend, outgoing.routes, sum(machine.sizes), outgoing.pieces,
                    document["seconds"], outgoing.prediction,
                )  # fmt: skip
            self._metrics.ended(self.name, outgoing, document)
            handle = self._handles.pop(outgoing.number, None)
            if handle is not None:
                handle.tell(document)

    def _tick(self) -> None:
        while not self._closed.wait(_TICK_S):
            for name in self.scheduler.tick():
                self.links[name].reset()
            self._metrics.rails(self.name, self.scheduler.rails.values())

    def _beat(self) -> None:
        """Say from time to time that the transfers under way are meant."""
        while not self._closed.wait(_BEAT_S):
            numbers = [outgoing.number for outgoing in self.scheduler.active()]
            if numbers:
                try:
                    self.control.ask("beat", {"transfers": numbers}, timeout_s=1.0)
                except DivvyError:
                    continue  # the transfers' own limits decide what becomes of them

    def rails(self) -> list[Rail]:
        """Return the rails as they are now."""
        return list(self.scheduler.rails.values())

    def close(self) -> None:
        """End what is under way and every thread and connection."""
        for outgoing in self.scheduler.active():
            self.scheduler.fail(outgoing, "the agent was closed")
        limit = time.monotonic() + 2
        while self._handles and time.monotonic() < limit:
            for name in self.scheduler.tick():
                self.links[name].reset()
            time.sleep(0.005)
        self._closed.set()
        self._over.put(None)
        for link in self.links.values():
            link.close()
        for thread in self._threads:
            thread.join(5)
        self.control.close()
