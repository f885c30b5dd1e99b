"""Faults of this machine's GPUs, as the driver writes them into the kernel's log.

The NVIDIA driver reports every XID there: ``NVRM: Xid (PCI:0000:65:00): 79, pid=..., GPU has fallen off the
bus``. The log is read without blocking from its present end on. Where it may not be read nothing is reported.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from divvy.control.ports import Clock
from divvy.fleet.event import NodeFaulted
from divvy.fleet.health import is_fatal
from divvy.units import MINUTE

KERNEL_LOG: Final = Path("/dev/kmsg")
_XID: Final = re.compile(rb"NVRM: Xid \(PCI:[0-9A-Fa-f:.]+\): ([0-9]{1,4})\b")
_RECORD: Final = 8_192
_MOST: Final = 1_000
_LOG = logging.getLogger(__name__)


class KernelLog:
    """Watches the kernel's log for XIDs that its nodes are to blame for.

    Args:
        nodes: Nodes of this machine that have GPUs.
        clock: Time of the events.
        path: The log.
    """

    def __init__(self, nodes: Sequence[str], clock: Clock, path: Path = KERNEL_LOG) -> None:
        self._nodes = nodes
        self._clock = clock
        self._told: dict[str, int] = {}
        self._log = -1
        if not nodes:
            return
        try:
            self._log = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with suppress(OSError):  # a pipe has no end to go to
                os.lseek(self._log, 0, os.SEEK_END)
        except OSError as error:
            _LOG.warning("%s cannot be read: faults of GPUs are not noticed: %s", path, error.strerror)

    def poll(self) -> list[NodeFaulted]:
        """Return the faults since the last call; the same one at most once a minute."""
        now, events = self._clock.now(), []
        for code in self._codes():
            fatal = is_fatal(code)
            if fatal is None or now - self._told.get(code, -MINUTE) < MINUTE:
                continue
            self._told[code] = now
            _LOG.warning("the driver reports %s", code)
            events += [NodeFaulted(now, node, code, fatal) for node in self._nodes]
        return events

    def close(self) -> None:
        """Stop watching."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _codes(self) -> Iterator[str]:
        """Yield the XIDs of the records that are there now."""
        for _ in range(_MOST if self._log >= 0 else 0):
            try:
                record = os.read(self._log, _RECORD)
            except OSError as error:
                if error.errno == errno.EPIPE:  # records were overwritten before they were read
                    continue
                return
            if not record:
                return
            yield from (f"xid-{int(match[1])}" for match in _XID.finditer(record))
