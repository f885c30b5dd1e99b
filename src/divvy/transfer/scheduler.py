"""All transfers to one peer: which of them a free rail serves next, and what happens to a rail in trouble."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from divvy.transfer.incoming import now_us
from divvy.transfer.machine.rails import Rail
from divvy.transfer.machine.sending import Answer, Attempt
from divvy.transfer.outgoing import Outgoing
from divvy.transfer.wire import Reply

#: A suspect rail that says nothing for this long is connected anew.
_RESET_US: Final = 800_000


class Scheduler:
    """Holds the machines of all transfers to a peer under one lock, and the state of the rails to it.

    Args:
        names: Names of the routes.
        on_end: Called with each transfer when it has ended and its source is read no more.
    """

    def __init__(self, names: Iterable[str], on_end: Callable[[Outgoing], None]) -> None:
        self.rails = {name: Rail(name) for name in names}
        self._changed = threading.Condition()
        self._active: dict[int, Outgoing] = {}
        self._ordered: list[Outgoing] = []
        self._broken: set[str] = set(self.rails)
        self._suspect_us: dict[str, int] = {}
        self._over_us: dict[int, int] = {}
        self._on_end = on_end

    def add(self, outgoing: Outgoing) -> None:
        """Begin a transfer."""
        with self._changed:
            outgoing.alone = not self._active
            for other in self._active.values():
                other.alone = False
            self._active[outgoing.number] = outgoing
            self._ordered = sorted(self._active.values(), key=lambda o: o.key)
            self._changed.notify_all()

    def active(self) -> list[Outgoing]:
        """Return the transfers that have not ended."""
        with self._changed:
            return list(self._active.values())

    def release(self, outgoing: Outgoing, descriptors: int) -> None:
        """Let the first `descriptors` descriptors of a transfer be sent."""
        with self._changed:
            outgoing.release_to(descriptors)
            self._changed.notify_all()

    def fail(self, outgoing: Outgoing, reason: str) -> None:
        """End a transfer without success."""
        with self._changed:
            outgoing.machine.fail(reason, now_us())
        self._settle()

    def next(self, name: str, timeout_s: float) -> tuple[Outgoing, Attempt] | None:
        """Return what a free rail shall send; None if there is nothing for some time or the rail broke."""
        with self._changed:
            for waited in (False, True):
                if name in self._broken:
                    return None
                for outgoing in self._ordered:
                    attempt = outgoing.machine.take(name, now_us())
                    if attempt is not None:
                        outgoing.readers += 1
                        return outgoing, attempt
                if not waited:
                    self._changed.wait(timeout_s)
        return None

    def sent(self, outgoing: Outgoing) -> None:
        """Note that a thread does not read the source any more."""
        with self._changed:
            outgoing.readers -= 1
        if outgoing.machine.verdict is not None:
            self._settle()

    def answered(self, name: str, reply: Reply, answer: Answer) -> None:
        """Take an answer that a rail brought."""
        with self._changed:
            rail = self.rails[name]
            outgoing = self._active.get(reply.transfer)
            rail.suspect = False
            rail.heard_us = now_us()
            self._suspect_us.pop(name, None)
            if outgoing is not None:
                outgoing.machine.answered(reply.chunk, reply.attempt, answer, now_us())
            self._changed.notify_all()
        if outgoing is not None and outgoing.machine.verdict is not None:
            self._settle()

    def connected(self, name: str) -> None:
        """Note that a rail's connection stands."""
        with self._changed:
            self._broken.discard(name)
            self._suspect_us.pop(name, None)
            rail = self.rails[name]
            rail.up, rail.suspect, rail.inflight = True, False, 0
            self._changed.notify_all()

    def mark_broken(self, name: str) -> None:
        """Note that a rail's connection has broken; its sending thread will notice."""
        with self._changed:
            self._broken.add(name)
            self.rails[name].up = False
            self._changed.notify_all()

    def is_broken(self, name: str) -> bool:
        """Return whether a rail's connection has broken."""
        with self._changed:
            return name in self._broken

    def broken(self, name: str) -> None:
        """Give what was on the way on a broken rail to the others."""
        with self._changed:
            self._broken.add(name)
            rail = self.rails[name]
            rail.up = False
            rail.lost += 1
            for outgoing in self._ordered:
                outgoing.machine.dropped(name, now_us())
            rail.inflight = 0
            self._changed.notify_all()

    def wake(self) -> None:
        """Wake every rail that waits for work."""
        with self._changed:
            self._changed.notify_all()

    def tick(self) -> list[str]:
        """Let time pass; return the rails whose connection is to be broken."""
        now, reset = now_us(), list[str]()
        with self._changed:
            for name, rail in self.rails.items():
                if rail.up and not rail.suspect and rail.overdue(now):
                    rail.slowed(now)
                    rail.suspect = True
                    rail.lost += 1
                    self._suspect_us[name] = now
                    for outgoing in self._ordered:
                        outgoing.machine.dropped(name, now)
                elif rail.suspect and now - self._suspect_us.get(name, now) > _RESET_US:
                    self._suspect_us[name] = now
                    reset.append(name)
            for outgoing in self._ordered:
                outgoing.tick()
                if outgoing.machine.verdict is not None and outgoing.readers:
                    since = self._over_us.setdefault(outgoing.number, now)
                    if now - since > 100_000:
                        reset.extend(self.rails)
            self._changed.notify_all()
        self._settle()
        return reset

    def _settle(self) -> None:
        """Hand over the transfers that have ended and whose source is read no more."""
        with self._changed:
            over = [o for o in self._ordered if o.machine.verdict is not None and not o.readers]
            for outgoing in over:
                del self._active[outgoing.number]
                self._over_us.pop(outgoing.number, None)
                for name in self.rails:
                    outgoing.machine.dropped(name, now_us())
            if over:
                self._ordered = [o for o in self._ordered if o.number in self._active]
        for outgoing in over:
            self._on_end(outgoing)
