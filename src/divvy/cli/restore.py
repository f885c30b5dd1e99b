"""divvy restore: put a copy that `divvy backup` made in the place of the state."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from divvy.cli.backup import Home
from divvy.cli.options import AsJson, NoTruncate, Quiet
from divvy.cli.render import Output


def verb(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy.")],
    home: Home = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Put a copy back. The control plane must be stopped; what is there now is kept beside it.

    Runs that are newer than the copy are not known to it: at the next start the engine ends them and says so
    in the log.
    """
    from divvy.adapters.store.copies import put_back  # noqa: PLC0415 - as every verb: when it is used
    from divvy.bootstrap import default_home  # noqa: PLC0415
    from divvy.service.home import make_home, sole_control_plane  # noqa: PLC0415

    root = (home or default_home()).absolute()
    make_home(root)
    with sole_control_plane(root):
        former = put_back(file.absolute(), root / "divvy.db")
    answer = {
        "schema": "divvy.restore/1",
        "store": str(root / "divvy.db"),
        "file": str(file.absolute()),
        "former": None if former is None else str(former),
    }
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(answer, [answer["store"]]):
        output.screen.line(f"{answer['store']} is what {file} was")
        if former is not None:
            output.screen.line(f"what was there before is in {former}")
