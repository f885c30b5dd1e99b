"""What was learned of the routes to each peer, kept in a file and aged.

The file is a file of costs (``divvy.route.costs/1``) with a time on each row, so `divvy route --costs` reads
it too. Rows are forgotten after two weeks, and what is older weighs less.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from divvy.errors import DivvyError
from divvy.perf.transfer import Learned, Prediction
from divvy.planners.transfers.calibrate import read_calibration

_KEPT: Final = 256
_KEPT_LOG: Final = 512
_OLDEST_S: Final = 14 * 86_400.0
_FORGET: Final = 0.98
_FORGET_HOUR: Final = 0.9
_SAVE_EVERY_S: Final = 5.0

Key = tuple[str, str, tuple[str, ...]]


class Calibration:
    """Costs by peer, back end and set of rails.

    Args:
        path: Where they are kept; None keeps them in memory only.
        host: Name of this agent.
    """

    def __init__(self, path: Path | None, host: str) -> None:
        self._path, self._host = path, host
        self._lock = threading.Lock()
        self._rows: dict[Key, deque[dict[str, Any]]] = {}
        self._models: dict[Key, Learned] = {}
        self._saved_s = 0.0
        self._dirty = False
        self.log: deque[dict[str, Any]] = deque(maxlen=_KEPT_LOG)
        self.finding = self._load()

    def models(self, peer: str, backend: str) -> dict[tuple[str, ...], Learned]:
        """Return what was learned of the sets of rails to a peer."""
        with self._lock:
            return {
                rails: model for (p, b, rails), model in self._models.items() if (p, b) == (peer, backend)
            }

    def observe(
        self,
        peer: str,
        backend: str,
        rails: Sequence[str],
        size_bytes: int,
        descriptors: int,
        seconds: float,
        prediction: Prediction,
    ) -> None:
        """Learn from a transfer that had its rails to itself; log the prediction beside it."""
        row = {
            "from": self._host,
            "to": peer,
            "bytes": size_bytes,
            "seconds": seconds,
            "kind": "tcp",
            "descriptors": descriptors,
            "rails": list(rails),
            "backend": backend,
            "at_s": time.time(),
        }
        with self._lock:
            self.log.append(
                {
                    **row,
                    "predicted_s": prediction.seconds,
                    "low_s": prediction.low,
                    "high_s": prediction.high,
                }
            )
            self._learn(row)
            self._dirty = True
        if time.monotonic() - self._saved_s > _SAVE_EVERY_S:
            self.save()

    def _learn(self, row: dict[str, Any]) -> None:
        key = (str(row["to"]), str(row["backend"]), tuple(row["rails"]))
        rows = self._rows.setdefault(key, deque(maxlen=_KEPT))
        size, seconds = float(row["bytes"]), float(row["seconds"])
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = Learned("tcp", max(size / seconds / 1e9, 1e-6))
        gap_hours = max(0.0, float(row["at_s"]) - float(rows[-1]["at_s"])) / 3600 if rows else 0.0
        model.forget = _FORGET * _FORGET_HOUR ** min(gap_hours, 72.0)
        model.observe(size, int(row["descriptors"]), seconds)
        rows.append(row)

    def _load(self) -> str:
        """Read the file; return what was wrong with it, empty where nothing was."""
        if self._path is None or not self._path.exists():
            return ""
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
            read_calibration(str(self._path), document)
            youngest = time.time() - _OLDEST_S
            rows = sorted(document["transfers"], key=lambda r: float(r["at_s"]))
            for row in rows:
                if youngest < float(row["at_s"]) <= time.time():
                    self._learn(row)
        except (OSError, ValueError, KeyError, TypeError, DivvyError) as error:
            with contextlib.suppress(OSError):
                self._path.replace(self._path.with_suffix(".unreadable"))
            return f"{self._path} was put aside: {error}"
        return ""

    def save(self) -> None:
        """Write the file, whole or not at all."""
        with self._lock:
            if self._path is None or not self._dirty:
                return
            document = self.to_json()
            self._dirty, self._saved_s = False, time.monotonic()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(document) + "\n", encoding="utf-8")
        part.replace(self._path)

    def to_json(self) -> dict[str, Any]:
        """Return the file of costs."""
        rows = [row for rows in self._rows.values() for row in rows]
        return {"schema": "divvy.route.costs/1", "transfers": rows}

    def summary(self) -> list[dict[str, Any]]:
        """Return start-up, cost per descriptor and rate of every set of rails, with error bars."""
        with self._lock:
            return [_summary(key, model, self._rows[key]) for key, model in self._models.items()]


def _summary(key: Key, model: Learned, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    startup, each, byte = (float(c) for c in model.coefficients())
    return {
        "peer": key[0],
        "backend": key[1],
        "rails": list(key[2]),
        "startup_s": startup,
        "descriptor_s": each,
        "gb_per_s": 1e-9 / byte,
        "span": model.span,
        "count": model.count,
        "age_s": max(0.0, time.time() - float(rows[-1]["at_s"])),
    }
