"""divvy up: start the control plane on this machine."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from contextlib import ExitStack, closing
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

import typer

from divvy.adapters.store import archive
from divvy.adapters.store.database import Database
from divvy.adapters.store.reader import Reader
from divvy.bootstrap import LiveSettings, check_engine, default_database, default_home, open_store
from divvy.bootstrap.interconnect import interconnect_of
from divvy.cli.client import Client, Target
from divvy.cli.page import page_link
from divvy.cli.render import Screen, Span
from divvy.cli.sample import SAMPLE_BUDGET, SAMPLE_SHAPE, SampleJobs
from divvy.errors import DivvyError, InputError
from divvy.fleet.budget import Budget, parse_budget, read_budget
from divvy.fleet.claims import UNFUNDED
from divvy.planners.jobs import registry
from divvy.service.child import Orders
from divvy.service.home import (
    listen_on_path,
    listen_on_port,
    make_home,
    sole_control_plane,
    url_of,
    write_address,
)
from divvy.service.notify.receivers import read_receivers
from divvy.service.peer import user_name
from divvy.service.supervisor import Child, Supervisor, python
from divvy.units import parse_duration

_FIRST_BUDGET: Final = {"accounts": {"default": {"share": 100}}}


_TLS: Final = "put a proxy with TLS before it, or leave --host away"


class _Wanted(NamedTuple):
    """What a new state directory begins with, where that comes from, and whether somebody named it."""

    budget: Budget
    source: str
    named: bool


def verb(
    sample: bool = typer.Option(False, "--sample", help="Begin with a sample organisation and short jobs."),
    host: str = typer.Option("127.0.0.1", "--host", help="Address to listen on."),
    port: int = typer.Option(8470, "--port", min=0, max=65_535, help="Port to listen on; 0 takes any."),
    home: Path | None = typer.Option(None, "--home", help="State directory. [$DIVVY_HOME]"),
    database: str = typer.Option("", "--database", envvar="DIVVY_DATABASE", help="postgresql+psycopg://..."),
    budget: Path | None = typer.Option(None, "--budget", help="Budget of a new state directory (TOML)."),
    nodes: str = typer.Option("", "--nodes", help="Offer this machine as KxM: K nodes of M devices."),
    slots: int = typer.Option(0, "--slots", min=0, help="Offer so many CPU slots, whatever GPUs there are."),
    engine: str = typer.Option("local", "--engine", help="Who runs the jobs: local, slurm or ray."),
    mode: str = typer.Option("observe", "--mode", help="With Slurm: observe, advise or enforce."),
    slurm_config: Path | None = typer.Option(None, "--slurm-config", help="Settings for Slurm (TOML)."),
    ray_address: str = typer.Option(
        "", "--ray-address", envvar="RAY_API_SERVER_ADDRESS", help="Ray's dashboard. [http://127.0.0.1:8265]"
    ),
    policy: str = typer.Option("budget", "--policy", help="Planner."),
    keep: str = typer.Option("90d", "--keep", help="How long jobs that are over stay readable."),
    keep_journal: str = typer.Option("14d", "--keep-journal", help="How long passes can be re-run."),
    trust_wall_clock: bool = typer.Option(False, "--trust-wall-clock", help="Take it, though it was set."),
    notify: Path | None = typer.Option(None, "--notify", help="Whom to tell. [notify.toml of the state]"),
    topology: list[Path] = typer.Option([], "--topology", help="Interconnect for pairs; repeat to merge."),
    no_browser: bool = typer.Option(False, "--no-browser", help="Do not open the page in a browser."),
) -> None:
    """Start the control plane on this machine: scheduler, API and page. It runs until Ctrl-C or SIGTERM.

    Jobs that run then go on, and the next `divvy up` takes them over.
    """
    began, root = time.monotonic(), (home or default_home()).absolute()
    shape = nodes or (str(slots) if slots else "") or (SAMPLE_SHAPE if sample else "")
    settings = LiveSettings(
        home=str(root),
        database=database or default_database(root),
        policy=registry.create(policy).name,
        shape=shape,
        slots=bool(slots),
        keep_jobs_days=_days("--keep", keep),
        keep_journal_days=_days("--keep-journal", keep_journal),
        trust_wall_clock=trust_wall_clock,
        engine=engine,
        mode=mode if engine == "slurm" else "enforce",
        engine_file=str(slurm_config.absolute()) if slurm_config is not None else "",
        engine_address=ray_address if engine == "ray" else "",
        notify=_receivers(notify, root),
        topology=_topology(topology),
    )
    check_engine(settings, sample=sample)  # what is not to be had is refused before anything else
    wanted = _with_unfunded(_read_budget(budget, sample=sample), settings)
    _up(settings, wanted, (host, port), sample=sample, browser=not no_browser, began=began)


def _up(
    settings: LiveSettings,
    budget: _Wanted,
    address: tuple[str, int],
    *,
    sample: bool,
    browser: bool,
    began: float,
) -> None:
    """Run the control plane until it is told to stop."""
    root, screen = Path(settings.home), Screen(sys.stderr)
    os.umask(0o077)
    make_home(root)
    with ExitStack() as stack:
        stack.enter_context(sole_control_plane(root))
        _found(settings, budget, screen)
        web = stack.enter_context(closing(listen_on_port(*address)))
        local = stack.enter_context(closing(listen_on_path(root / "socket")))
        url = url_of(web)
        write_address(root, url)
        if not ip_address(web.getsockname()[0]).is_loopback:
            _warn(screen, f"{url} can be reached from other machines, and HTTP hides no token: {_TLS}")

        def ready() -> None:
            page = _announce(screen, root, url, time.monotonic() - began, with_link=sample)
            if sample:
                SampleJobs(root / "socket").start()
            if browser:
                _open_browser(page)

        sockets = (web.fileno(), local.fileno())
        children = [
            Child("loop", python("divvy.service.loop_process"), Orders(settings)),
            Child("api", python("divvy.service.api_process"), Orders(settings, sockets)),
        ]
        if settings.notify:
            children.append(Child("notify", python("divvy.service.notify_process"), Orders(settings)))
        Supervisor(children, root / "logs", lambda line: _warn(screen, line)).run(ready)
        screen.line("stopped; jobs that run go on, and the next `divvy up` takes them over")


def _receivers(named: Path | None, root: Path) -> str:
    """Return the file of receivers, checked; empty where nobody is to be told.

    Raises:
        InputError: If it cannot be used.
    """
    path = named if named is not None else root / "notify.toml"
    if named is None and not path.exists():
        return ""
    read_receivers(path)
    return str(path.absolute())


def _topology(files: list[Path]) -> str:
    """Return the files of the interconnect, checked; empty where none is named.

    Raises:
        InputError: If they cannot be used.
    """
    named = os.pathsep.join(str(path.absolute()) for path in files)
    read = interconnect_of(named)
    if read is not None:
        read()
    return named


def _days(option: str, text: str) -> float:
    try:
        return parse_duration(text) / parse_duration("1d")
    except ValueError as error:
        raise InputError.one("duration", str(error), path=option) from error


def _read_budget(path: Path | None, *, sample: bool) -> _Wanted:
    if path is None and sample:
        return _Wanted(read_budget(SAMPLE_BUDGET), "the sample organisation", named=False)
    if path is None:
        return _Wanted(read_budget(_FIRST_BUDGET), "one account, default", named=False)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError.one(
            "budget-unreadable", f"cannot read {path} ({error})", path="--budget", fix="name a TOML file"
        ) from error
    return _Wanted(parse_budget(text, str(path)), str(path), named=True)


def _with_unfunded(wanted: _Wanted, settings: LiveSettings) -> _Wanted:
    """Add the account of names that nobody claims, where an engine brings names of its own."""
    accounts = wanted.budget.to_document()["accounts"]
    if settings.engine != "slurm" or UNFUNDED in accounts:
        return wanted
    document = wanted.budget.to_document() | {"accounts": accounts | {UNFUNDED: {"share": 0}}}
    return wanted._replace(budget=read_budget(document, wanted.source))


def _found(settings: LiveSettings, wanted: _Wanted, screen: Screen) -> None:
    """Write the first budget into a new store; say so if an old one holds another than was named."""
    with closing(_Store(settings.database)) as store:
        if archive.is_new(store.database):
            now, author = time.time_ns() // 1_000_000, user_name(os.geteuid())
            archive.found(store.database, wanted.budget, now, author, f"divvy up: {wanted.source}")
            return
        held = Reader(store.database).budget()
    if held is None or not wanted.named or read_budget(held.document) == wanted.budget:
        return
    _warn(
        screen,
        f"{wanted.source} is not used: version {held.version} of the budget is in force here "
        f"(`divvy budget set {wanted.source} --reason WHY` makes it the next one)",
    )


def _warn(screen: Screen, text: str) -> None:
    screen.line(Span(text, "yellow"))


class _Store:
    def __init__(self, url: str) -> None:
        self.database: Database = open_store(url, verify=True)

    def close(self) -> None:
        self.database.dispose()


def _announce(screen: Screen, home: Path, url: str, seconds: float, *, with_link: bool) -> str:
    """Say where everything is; return the address of the page, with a token where somebody sits in front.

    A log that keeps what is printed here must not hold the key of an administrator.
    """
    screen.line(Span("Divvy is up: ", "bold green"), Span(url, "bold"), f"  (ready in {seconds:.1f} s)")
    page, told = url, "sign in with the address that `divvy page` prints"
    if with_link or screen.terminal:
        try:
            socket = home / "socket"
            page = page_link(Client(Target(f"unix:{socket}", socket)), "admin", "12h")["url"]
            told = f"{page}  (signs you in, for 12 hours)"
        except DivvyError as error:
            told = f"no link to sign in with now ({error}); try `divvy page`"
    rows = (
        ("page", told),
        ("socket", f"{home / 'socket'}  (the command line uses it)"),
        ("state", str(home)),
        ("logs", f"{home / 'logs' / 'loop.log'}, {home / 'logs' / 'api.log'}"),
    )
    for name, text in rows:
        screen.line("  ", Span(f"{name:<7}", "dim"), text)
    screen.line("Ctrl-C stops it; jobs that run go on, and the next `divvy up` takes them over.")
    return page


def _open_browser(url: str) -> None:
    """Open the page where somebody would see it: on a terminal with a display."""
    if sys.stderr.isatty() and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        webbrowser.open(url)
