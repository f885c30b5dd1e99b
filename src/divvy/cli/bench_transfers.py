"""Bytes over unequal rails that really exist: Divvy beside NIXL/UCX and Mooncake, in turns.

Every part builds its own lab (network namespaces, rate-limited links; needs root), starts every contender on
its hosts and lets them move the same bytes in turns. What cannot be run is a row without a value, with its
reason.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import divvy
from divvy.adapters.rails import lab
from divvy.cli.bench_row import Row, figure
from divvy.cli.bench_transfers_guess import prediction_rows
from divvy.cli.bench_transfers_heal import healing_rows
from divvy.cli.bench_transfers_layers import layer_rows
from divvy.cli.bench_transfers_many import many_rows
from divvy.cli.bench_transfers_setting import Setting
from divvy.cli.bench_transfers_two import checksum_rows, rail_rows
from divvy.errors import InputError

Announce = Callable[[str], None]

PARTS: Final[dict[str, Callable[[Setting], Iterator[Row]]]] = {
    "rails": rail_rows,
    "many": many_rows,
    "healing": healing_rows,
    "prediction": prediction_rows,
    "checksum": checksum_rows,
    "layers": layer_rows,
}

#: What decides the figures of a part: kept rows are used only by the code that made them.
_ROOMS: Final = ("transfer", "adapters/rails", "planners/transfers", "cli")


def rows(
    *,
    quick: bool = False,
    announce: Announce = lambda _: None,
    parts: Sequence[str] = (),
    cache: Path | None = None,
    minutes: float | None = None,
    **refused: Any,
) -> Iterator[Row]:
    """Yield every figure of live transfers.

    Args:
        quick: Whether to stay within a minute: fewer turns, fewer bytes.
        announce: Told what is being measured.
        parts: Only these parts.
        cache: Directory in which the rows of finished parts are kept.
        minutes: Begin no further part after this long.
        refused: Limits that mean nothing here.

    Raises:
        InputError: If a limit is given that means nothing here.
    """
    if refused:
        given = ", ".join(f"--{name}" for name in refused)
        raise InputError.one("bench-limits", f"transfers takes no {given}", path=given, fix="leave it out")
    began = time.monotonic()
    reason = lab.missing()
    setting = Setting(quick, announce)
    for name in parts or PARTS:
        kept = _kept(cache, name, quick=quick)
        if reason:
            yield figure(name, "not measured", None, "", note=f"no lab of rails here: {reason}")
        elif kept is not None and kept.exists():
            yield from json.loads(kept.read_text(encoding="utf-8"))
        elif minutes is not None and time.monotonic() - began > minutes * 60:
            yield figure(name, "not measured", None, "", note="the time was up; go on with the same --cache")
        else:
            announce(name)
            found = list(PARTS[name](setting))
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(found), encoding="utf-8")
            yield from found


def _kept(cache: Path | None, part: str, *, quick: bool) -> Path | None:
    """Return where the rows of a part are kept by this code."""
    if cache is None:
        return None
    return cache / f"transfers-{part}-{'quick' if quick else 'full'}-{_code()}.json"


def _code() -> str:
    """Return a hash of the code that decides the figures."""
    root, found = Path(divvy.__file__).parent, hashlib.sha256()
    for room in _ROOMS:
        pattern = "bench_transfers*.py" if room == "cli" else "**/*.py"
        for path in sorted((root / room).glob(pattern)):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]
