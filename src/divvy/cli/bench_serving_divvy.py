"""Divvy as a contender: `divvy serve` as a process before the same servers."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from divvy.cli.bench_serving_contenders import OURS, Contender, Place
from divvy.cli.bench_serving_search import Fire, sender
from divvy.cli.lab_backends import write_backends, write_profile
from divvy.errors import EngineError

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 35.0


@contextmanager
def served(file: Path, prefix: Sequence[str] = ()) -> Iterator[tuple[str, int]]:
    """Run `divvy serve` on a back-ends file; yield its URL and process.

    Args:
        file: The file.
        prefix: Words before the command, such as ``taskset -c 0``.

    Raises:
        EngineError: If it does not come up.
    """
    command = [*prefix, sys.executable, "-m", "divvy", "serve", "--backends", str(file), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    try:
        ready, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
        url = process.stdout.readline().strip() if ready else ""
        if not url.startswith("http"):
            raise EngineError.one("bench-serve", "divvy serve did not come up")
        yield url, process.pid
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def write_place(place: Place) -> Path:
    """Write the back-ends file of a place, and beside it its profile; return the file."""
    place.home.mkdir(parents=True, exist_ok=True)
    profile, file = place.home / "profile.csv", place.home / "backends.json"
    write_profile(profile, place.stage.profile)
    choice = place.deployed.choice
    slo_ms = place.stage.request.slo_us / 1e3
    price = dict(choice.price)
    write_backends(file, place.running, str(profile), slo_ms, rule=choice.dispatcher, price=price)
    return file


def _start(place: Place) -> Iterator[Fire]:
    with served(write_place(place)) as (url, _):
        yield sender(url, place.running)


ROUTERS: Final = (
    Contender("divvy serve, divvy", OURS, "divvy", _start, "late binding, own search of the layout"),
    Contender("divvy serve, elsa", OURS, "elsa", _start, "ELSA verbatim, best legal layout"),
)
