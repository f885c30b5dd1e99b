"""The page on 1,250 x 8 devices and 50,000 jobs: first paint, updates, and what it costs the scheduler.

Three processes as `divvy up` runs them: the loop with an engine that pretends, the API, a headless Chromium.
Passes are timed in blocks with the page open and closed in turn (open, closed, closed, open), so that what
else the machine does falls on both; the figures are medians of a block, compared pair by pair.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from divvy.adapters.store.health import read_health
from divvy.adapters.store.reader import Reader
from divvy.adapters.store.tokens import TokenTable
from divvy.bootstrap.api import open_for_api
from divvy.bootstrap.loop import live_loop
from divvy.bootstrap.settings import default_database, open_store
from divvy.cli import bench_core_api as pretended
from divvy.cli.bench_row import Row, figure, median
from divvy.errors import UnavailableError
from divvy.fleet.node import Node
from divvy.service.app import create_app
from divvy.service.identity import Role
from divvy.service.ports import Backend
from divvy.service.server import serve
from divvy.service.tokens import make_token

_PAUSE_MS: Final = 250
_PER_NODE: Final = 8
_SETTLE_SECONDS: Final = 1.5
_READY_SECONDS: Final = 240.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_FIRST: Final = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
)


@dataclass(frozen=True, slots=True)
class _Size:
    nodes: int
    jobs: int
    pairs: int
    block_seconds: float
    visits: int


_FULL: Final = _Size(1_250, 50_000, 12, 15.0, 7)
_QUICK: Final = _Size(1_250, 3_000, 2, 3.0, 2)


class _Paced(pretended.PretendEngine):
    """Ends a run every quarter of a second, and starts what it is told."""

    def __init__(self, clock: Any, nodes: Sequence[Node]) -> None:
        super().__init__(clock, nodes)
        os.read(self._ear, 1)

    def pause_ms(self) -> int | None:
        """Return when it wants to be asked again."""
        return _PAUSE_MS


def rows(*, quick: bool, announce: Callable[[str], None]) -> Iterator[Row]:
    """Yield the figures; what cannot be measured for want of a browser says so.

    Args:
        quick: A smaller queue and fewer blocks, the same rows.
        announce: Told what is being done.
    """
    size = _QUICK if quick else _FULL
    chromium = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
    if find_spec("playwright") is None or chromium is None:
        raise UnavailableError.one(
            "bench-browser",
            "no Chromium, or no Playwright to drive it",
            fix="apt-get install chromium; pip install playwright",
        )
    api: Any = import_module("playwright.sync_api")
    where = f"fleet of {size.nodes:,} x {_PER_NODE}, {size.jobs:,} jobs"
    with (
        tempfile.TemporaryDirectory(prefix="divvy") as home,
        _system(home, size, announce) as (pid, link),
        api.sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=list(_FLAGS))
        yield from _paints(browser, link, size, where, announce)
        yield from _passes(browser, link, Path(home), pid, size, where, announce)
        browser.close()


def _paints(
    browser: Any, link: str, size: _Size, where: str, announce: Callable[[str], None]
) -> Iterator[Row]:
    announce("first paints")
    first, drawn = [], []
    for _ in range(size.visits):
        context = browser.new_context(viewport={"width": 1280, "height": 860})
        page, began = context.new_page(), time.perf_counter()
        page.goto(link)
        page.wait_for_selector("html[data-ready=fleet]", timeout=60_000)
        drawn.append((time.perf_counter() - began) * 1e3)
        first.append(float(page.evaluate(_FIRST)))
        context.close()
    note = "least and greatest beside it"
    yield _times(where, "first contentful paint", first, 1_000, note)
    yield _times(where, "from the address to the drawn fleet", drawn, None, note)


def _passes(
    browser: Any, link: str, home: Path, pid: int, size: _Size, where: str, announce: Callable[[str], None]
) -> Iterator[Row]:
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.goto(link)
    page.wait_for_selector("html[data-ready=fleet]", timeout=60_000)
    blocks: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    updates: list[float] = []
    paints: list[float] = []
    for number in range(size.pairs):
        announce(f"passes: pair {number + 1} of {size.pairs}")
        for is_open in (True, False) if number % 2 == 0 else (False, True):
            page.goto(f"{link.partition('/#')[0]}/#/fleet" if is_open else "about:blank")
            if is_open:
                page.wait_for_selector("html[data-ready=fleet]", timeout=60_000)
            page.wait_for_timeout(_SETTLE_SECONDS * 1e3)
            blocks[is_open].append(_block(home, pid, size.block_seconds, lambda: page.wait_for_timeout(20)))
            if is_open:
                updates += _entries(page, "update")[1:]
                paints += _entries(page, "paint")[1:]
    context.close()
    yield _times(
        where,
        "an update: asked, received, parsed, painted",
        updates,
        200,
        "one page, changes four times a second",
    )
    yield _times(where, "of it painting", paints, None, "")
    pairs = list(zip(blocks[True], blocks[False], strict=True))
    for at, measure in ((0, "wall clock"), (1, "processor time of the loop")):
        without = median([closed[at] for _, closed in pairs])
        ratios = [opened[at] / closed[at] for opened, closed in pairs if closed[at]]
        yield figure(
            where,
            f"a pass with the page open over one without, {measure}",
            median(ratios),
            "ratio",
            interval=_middle(ratios),
            n=len(ratios),
            target=1.02,
            note=f"medians of blocks in turn, {without:.1f} ms without; 95% interval of the median",
        )


def _block(home: Path, pid: int, seconds: float, rest: Callable[[], None]) -> tuple[float, float]:
    """Return the median time of a pass, and processor time per pass, ms, over a block."""
    taken: dict[int, float] = {}
    used, limit = _processor(pid), time.monotonic() + seconds
    while time.monotonic() < limit:
        health = read_health(home / "health")
        if health is not None:
            taken[health.seq] = health.pass_ms
        rest()
    return median(list(taken.values())), (_processor(pid) - used) * 1e3 / max(len(taken), 1)


def _processor(pid: int) -> float:
    """Return the processor time of a process so far, seconds."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


def _entries(page: Any, name: str) -> list[float]:
    return [
        float(v)
        for v in page.evaluate(f"performance.getEntriesByName('divvy:{name}').map((e) => e.duration)")
    ]


def _middle(values: Sequence[float]) -> tuple[float, float]:
    """Return a 95% interval of the median, by drawing again."""
    draw = random.Random(1)  # noqa: S311 - an interval, not a secret
    again = sorted(median(draw.choices(values, k=len(values))) for _ in range(2_000))
    return again[50], again[1_949]


def _times(where: str, measure: str, values: list[float], target: float | None, note: str) -> Row:
    if not values:
        return figure(where, measure, None, "ms", n=0, target=target, note="the page was not updated")
    edge = (min(values), max(values))
    return figure(
        where, measure, median(values), "ms", interval=edge, n=len(values), target=target, note=note
    )


# -- the system -----------------------------------------------------------------------------------------


@contextmanager
def _system(home: str, size: _Size, announce: Callable[[str], None]) -> Iterator[tuple[int, str]]:
    """Run a loop and an API with a full queue; yield the loop's process id and the link of the page."""
    announce(f"{size.jobs:,} jobs are stored")
    pretended.found(home)
    pretended.fill(home, "long", size.jobs, 1)
    database = open_store(default_database(Path(home)))
    secret, row = make_token("bench", Role.ADMIN, now=time.time_ns() // 1_000_000, created_by="bench")
    TokenTable(database).add(row)
    context = multiprocessing.get_context("spawn")
    loop = context.Process(target=_run_loop, args=(home, size.nodes))
    api = context.Process(target=_run_api, args=(home,))
    try:
        for process in (loop, api):
            process.start()
        reader, limit = Reader(database), time.monotonic() + _READY_SECONDS
        announce("the scheduler takes them up")
        while reader.count([None]) or not (Path(home) / "port").exists():
            if time.monotonic() > limit:
                raise UnavailableError.one("bench-up", f"the queue was not taken up in {_READY_SECONDS:g} s")
            time.sleep(0.2)
        port = (Path(home) / "port").read_text(encoding="ascii")
        assert loop.pid is not None  # noqa: S101 - it was started
        yield loop.pid, f"http://127.0.0.1:{port}/#token={secret}"
    finally:
        database.dispose()
        for process in (api, loop):
            process.terminate()
            process.join(30)
            if process.is_alive():
                process.kill()


def _run_loop(home: str, nodes: int) -> None:
    pretended.quiet()
    fleet = [Node(f"node{number:04}", _PER_NODE) for number in range(nodes)]
    with live_loop(pretended.settings(home), lambda _settings, world: _Paced(world.clock, fleet)) as (
        driver,
        waiter,
    ):
        waiter.stop_on(signal.SIGTERM)
        driver.run()


def _run_api(home: str) -> None:
    pretended.quiet()
    store = open_for_api(pretended.settings(home))
    listener = socket.create_server(("127.0.0.1", 0))
    backend = Backend(
        store.reader, store.intake, store.tokens, store.now, Path(home), os.geteuid(), store.health
    )

    def ready() -> None:
        (Path(home) / "port").write_text(str(listener.getsockname()[1]), encoding="ascii")

    try:
        serve(create_app(backend), [listener], ready)
    finally:
        store.close()
