"""Waiting: sleep until one of several descriptors is readable, a signal arrives, or the time is up."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable, Iterable
from types import FrameType


class Waiter:
    """Sleeps for a loop.

    Args:
        wakes: (descriptor, what to do when it becomes readable, before the sleeper is told).
        lifeline: A descriptor that is closed at the other end when the parent process is gone; -1: none.
    """

    def __init__(self, wakes: Iterable[tuple[int, Callable[[], None]]], lifeline: int = -1) -> None:
        self._poll = select.poll()
        self._end = select.poll()
        self._wakes = dict(wakes)
        self._lifeline = lifeline
        self._ear, self._mouth = socket.socketpair()
        self._ear.setblocking(False)
        self._mouth.setblocking(False)
        self.stopped = False
        """Whether a signal or the end of the parent asked for the end."""
        for descriptor in self._wakes:
            self._poll.register(descriptor, select.POLLIN)
        for poll in (self._poll, self._end):
            poll.register(self._ear.fileno(), select.POLLIN)
            if lifeline >= 0:
                poll.register(lifeline, select.POLLIN)

    def stop_on(self, *signals: signal.Signals) -> None:
        """Ask for the end when one of these signals arrives."""
        signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
        for number in signals:
            signal.signal(number, self._stop)

    def wait(self, seconds: float) -> bool:
        """Sleep at most so long; return whether one of the descriptors had something."""
        woken = False
        for descriptor, _ in self._poll.poll(max(seconds, 0.0) * 1000):
            if descriptor in self._wakes:
                self._wakes[descriptor]()
                woken = True
            else:
                self._ended(descriptor)
        return woken

    def rest(self, seconds: float) -> None:
        """Sleep so long whatever the descriptors have; only a call to end cuts it short."""
        for descriptor, _ in self._end.poll(max(seconds, 0.0) * 1000):
            self._ended(descriptor)

    def _ended(self, descriptor: int) -> None:
        if descriptor == self._ear.fileno():
            with contextlib.suppress(BlockingIOError):
                self._ear.recv(64)
        elif not os.read(descriptor, 1):
            for poll in (self._poll, self._end):
                poll.unregister(descriptor)
            self.stopped = True

    def close(self) -> None:
        """Let go of the signals and the descriptors made here."""
        signal.set_wakeup_fd(-1)
        self._ear.close()
        self._mouth.close()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stopped = True
