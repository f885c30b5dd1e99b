"""divvy audit: what Slurm's own accounting says that every account was owed, and what it got."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import typer

from divvy.adapters.slurm.accounting.clock import Clock
from divvy.adapters.slurm.accounting.read import Form, read_accounting
from divvy.cli.audit_text import show
from divvy.cli.options import AsJson, NoTruncate, Quiet
from divvy.cli.render import Output
from divvy.control.audit.attribute import ENGINE, By
from divvy.control.audit.audit import Period, audit
from divvy.control.audit.document import document, job_lines
from divvy.control.audit.jobs import UNKNOWN, Accounting
from divvy.control.audit.runs import as_of
from divvy.errors import Fault, InputError
from divvy.fleet.account import AccountTree
from divvy.fleet.budget import parse_budget
from divvy.fleet.claims import claimant_in
from divvy.units import DAY, parse_duration

_WHEN: Final = 'a date, a time, or a duration back from the last instant in the files ("30d")'
_BELIEVED: Final = 366 * DAY


def verb(
    files: list[str] = typer.Argument(
        metavar="FILE...", help="sacct, squeue, scontrol or sinfo, text or JSON; - is standard input."
    ),
    budgets: Path | None = typer.Option(
        None, "--budgets", metavar="TOML", help="The shares; without it all names have the same share."
    ),
    form: Form = typer.Option(Form.AUTO, "--format", help="What the files are."),
    by: By = typer.Option(By.ACCOUNT, "--by", help="What of a job the budget's names are compared with."),
    since: str = typer.Option("", "--from", metavar="WHEN", help=f"Begin: {_WHEN}."),
    until: str = typer.Option("", "--to", metavar="WHEN", help="End, likewise; by default what is known."),
    jobs: Path | None = typer.Option(
        None, "--jobs", metavar="OUT", help="Write one JSON line for each job understood."
    ),
    html: Path | None = typer.Option(None, "--html", metavar="OUT", help="Write the report as a page."),
    zone: str = typer.Option("", "--tz", help="Zone of the times in text; that of this machine by default."),
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Audit a Slurm from its own accounting: owed, delivered, waits, losses, limits, squatting.

    Needs nothing of the cluster but files. With -q: the accounts. docs/howto/audit-slurm.md begins with one
    command to get them.
    """
    budget = _tree(budgets)
    clock = Clock(zone, round(time.time()) * 1000 + _BELIEVED)
    _check_outputs([*files], jobs, html)
    with _opened(files) as streams, _no_collector():
        read = read_accounting(streams, form, clock, _claims(budget))
    period = _period(since, until, read, clock)
    audited = audit(read, budget, by, period)
    report = document(audited, zone or time.tzname[time.localtime().tm_isdst > 0])
    if jobs is not None:
        with _writing(jobs) as out:
            out.writelines(job_lines(read.jobs, read.files))
    if html is not None:
        from divvy.cli.audit_page import page  # noqa: PLC0415 - only a page pays for it

        with _writing(html) as out:
            out.write(page(report))
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(report, (account["account"] for account in report["accounts"])):
        show(output.screen, report, jobs, html)


def _tree(budgets: Path | None) -> AccountTree | None:
    if budgets is None:
        return None
    try:
        text = sys.stdin.read() if str(budgets) == "-" else budgets.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError.one(
            "budget-unreadable", f"{budgets} cannot be read: {error}", path="--budgets"
        ) from error
    return parse_budget(text, budgets.name).tree


def _claims(tree: AccountTree | None) -> Any:
    """Return whether the budget claims a name, remembered per name."""
    known: dict[str, bool] = {}

    def claims(name: str) -> bool:
        if tree is None or not name:
            return False
        if name not in known:
            known[name] = claimant_in(ENGINE, name, tree) is not None
        return known[name]

    return claims


@contextmanager
def _opened(files: list[str]) -> Iterator[Iterator[tuple[str, BinaryIO]]]:
    """Open the files one after another; those that cannot be opened are refused together, before any is read.

    Raises:
        InputError: With one fault for each of them.
    """
    faults = [fault for name in files if name != "-" and (fault := _unreadable(Path(name))) is not None]
    if faults:
        raise InputError("some files cannot be read", faults)
    with ExitStack() as stack:

        def streams() -> Iterator[tuple[str, BinaryIO]]:
            for name in files:
                if name == "-":
                    yield "stdin", sys.stdin.buffer
                else:
                    yield name, stack.enter_context(Path(name).open("rb"))

        yield streams()


@contextmanager
def _no_collector() -> Iterator[None]:
    """Keep the garbage collector from looking through a million rows again and again: they hold no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _unreadable(path: Path) -> Fault | None:
    try:
        if path.is_dir():
            return Fault("file-unreadable", str(path), "is a directory", "a file", "name the files in it")
        with path.open("rb"):
            return None
    except OSError as error:
        return Fault("file-unreadable", str(path), error.strerror or "cannot be opened", "", "check the path")


def _check_outputs(inputs: list[str], *outputs: Path | None) -> None:
    """Refuse to write over an input.

    Raises:
        InputError: If an output is one of the inputs.
    """
    read = {Path(name).resolve() for name in inputs if name != "-"}
    for out in outputs:
        if out is not None and out.resolve() in read:
            raise InputError.one(
                "output-is-input",
                f"{out} is read; it is not written over",
                path=str(out),
                fix="choose another",
            )


@contextmanager
def _writing(path: Path) -> Iterator[Any]:
    try:
        with path.open("w", encoding="utf-8") as out:
            yield out
    except OSError as error:
        raise InputError.one(
            "output-unwritable", f"{path} cannot be written: {error.strerror}", path=str(path)
        ) from error


def _period(since: str, until: str, read: Accounting, clock: Clock) -> Period:
    last = as_of(read.jobs)
    return Period(_moment(since, "--from", last, clock), _moment(until, "--to", last, clock))


def _moment(text: str, option: str, last: int, clock: Clock) -> int:
    """Return an instant, UNKNOWN for none.

    Raises:
        InputError: If the text is none.
    """
    if not text:
        return UNKNOWN
    try:
        back = parse_duration(text)
    except ValueError:
        pass
    else:
        if last != UNKNOWN:
            return last - back
    try:
        return clock.read(text if "T" in text or " " in text or text.isdigit() else f"{text}T00:00:00")
    except ValueError as error:
        raise InputError.one(
            "time-format", f"{text!r} is not a time", path=option, allowed=_WHEN, fix="correct it"
        ) from error
