"""What slices worked for accounts: counted in memory, cut into batches on disk, posted to the control plane.

Counting costs a query one addition. A batch is a file before it is posted and stays until it is charged; its
id makes a second post harmless. While the control plane is away files gather up to a bound, and from then on
the present batch just grows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from divvy.errors import ConflictError, DivvyError, InputError, NotFoundError

EVERY_SECONDS: Final = 10.0
_MOST_FILES: Final = 10_000
_REFUSED: Final = (ConflictError, InputError, NotFoundError)

#: Posts a batch; raises `DivvyError` where it was not taken.
Post = Callable[[dict[str, Any]], object]
#: Microseconds by account and compute slices.
Worked = dict[str, dict[int, int]]


class Charges:
    """Collects what slices worked, and sees to it that it is charged once.

    Args:
        spool: Directory of batches that are not charged yet.
        gpu: Model of the devices that the slices are cut from.
        post: Posts a batch to the control plane.
        tell: Told what could not be charged, once as it begins.
        most_files: Files that may wait.
    """

    def __init__(
        self,
        spool: Path,
        gpu: str,
        post: Post,
        tell: Callable[[str], None],
        most_files: int = _MOST_FILES,
    ) -> None:
        self._spool, self._gpu, self._post, self._tell = spool, gpu, post, tell
        self._most = most_files
        self._worked: Worked = {}
        self._away = False
        self.posted = self.refused = 0

    def add(self, account: str, gpcs: int, microseconds: int) -> None:
        """Count what a slice worked for an account; what nobody is known to have asked is nobody's."""
        if account:
            sizes = self._worked.setdefault(account, {})
            sizes[gpcs] = sizes.get(gpcs, 0) + microseconds

    async def run(self, ended: asyncio.Event, every_seconds: float = EVERY_SECONDS) -> None:
        """Cut and post again and again, and once more at the end; files and network are left to a thread."""
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), every_seconds)
            worked, self._worked = self._worked, {}
            await asyncio.to_thread(self._round, worked, last=ended.is_set())
            for account, sizes in worked.items():
                for gpcs, spent in sizes.items():
                    self.add(account, gpcs, spent)

    def _round(self, worked: Worked, *, last: bool) -> None:
        self.cut(worked, last=last)
        try:
            self.send()
        except OSError as error:
            self._trouble(f"{self._spool}: {error.strerror}")

    def cut(self, worked: Worked, *, last: bool = False) -> None:
        """Write what was counted as batches, one an account; what cannot be written stays in `worked`.

        Args:
            worked: Microseconds by account and compute slices.
            last: Whether nothing is cut after this: then the bound does not hold.
        """
        try:
            self._spool.mkdir(mode=0o700, parents=True, exist_ok=True)
            room = self._most - len(self.waiting())
            for account in list(worked):
                if room <= 0 and not last:
                    return
                self._write(account, worked[account])
                del worked[account]
                room -= 1
        except OSError as error:
            self._trouble(f"{self._spool}: {error.strerror}")

    def waiting(self) -> list[Path]:
        """Return the batches that are not charged yet, the oldest first."""
        return sorted(self._spool.glob("*.json"))

    def send(self) -> None:
        """Post what waits, oldest first, up to the first that cannot be posted now."""
        for file in self.waiting():
            try:
                self._post(json.loads(file.read_bytes()))
            except (*_REFUSED, ValueError) as error:  # it would never be taken: kept aside, for people
                self.refused += 1
                self._tell(f"{file}: not charged: {error}")
                file.rename(file.with_suffix(".refused"))
                continue
            except FileNotFoundError:  # another router of this directory has posted it
                continue
            except (DivvyError, OSError) as error:
                self._trouble(str(error))
                return
            self.posted += 1
            self._away = False
            file.unlink(missing_ok=True)

    def metrics(self) -> str:
        """Return the figures for Prometheus."""
        rows = (("posted", self.posted), ("refused", self.refused))
        lines = [
            f"# TYPE divvy_serve_charges_{n}_total counter\ndivvy_serve_charges_{n}_total {v}\n"
            for n, v in rows
        ]
        return "".join(lines)

    def _write(self, account: str, sizes: dict[int, int]) -> None:
        now_ms = time.time_ns() // 1_000_000
        name = f"r{uuid.uuid4().hex}"
        rows = [{"model": f"{self._gpu}.{g}g", "microseconds": us} for g, us in sorted(sizes.items())]
        document = {"id": name, "account": account, "until_at": now_ms / 1e3, "slices": rows}
        file = self._spool / f"{now_ms:015d}-{name}.json"
        part = file.with_suffix(".part")
        with part.open("w", encoding="utf-8") as out:
            json.dump(document, out)
            out.flush()
            os.fsync(out.fileno())
        part.rename(file)

    def _trouble(self, why: str) -> None:
        if not self._away:
            self._away = True
            self._tell(f"slice-seconds wait to be charged: {why}")
