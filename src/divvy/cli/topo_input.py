"""Files into one topology, for `divvy topo` and `divvy route`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from divvy.errors import Fault, InputError, NotFoundError
from divvy.fleet.topology.graph import Topology
from divvy.fleet.topology.read import ALLOWED, build, kind_of

_MOST_BYTES = 64 * 1024 * 1024


def read_text(path: Path) -> str:
    """Return the text of a file, or of standard input for ``-``.

    Raises:
        NotFoundError: If there is no such file.
        InputError: If it cannot be read or is too large.
    """
    if str(path) == "-":
        return sys.stdin.read()
    if not path.exists():
        raise NotFoundError.one("file-missing", f"no file {str(path)!r}", path=str(path))
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError.one("unreadable", f"{path} is larger than 64 MiB", path=str(path))
        return path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise InputError.one("unreadable", f"{path}: {error.strerror}", path=str(path)) from error


def write_text(path: Path, text: str, option: str) -> None:
    """Write a file; directories above it are made.

    Raises:
        InputError: If it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fix = "give a path that you may write"
        raise InputError.one("unwritable", f"{path}: {error.strerror}", path=option, fix=fix) from error


def load(paths: Sequence[Path], *, peer: bool = True) -> Topology:
    """Return the merged topology of files; `peer` False takes PCIe peer-to-peer away.

    Raises:
        InputError: With one fault for each file that cannot be read.
    """
    texts: list[tuple[str, str]] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            texts.append((path.name, read_text(path)))
        except NotFoundError as error:
            faults.extend(
                replace(f, fix="check the path; the shell expands * only where files match")
                for f in error.faults
            )
        except InputError as error:
            faults.extend(error.faults)
    if faults:
        raise InputError("some inputs cannot be read", faults)
    topo = build(texts)
    return topo if peer else replace(topo, peering=replace(topo.peering, allowed=False))


def each(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the topology inputs of a file or a directory, with the name that results carry."""
    if not path.is_dir():
        yield path.name, path
        return
    found = False
    for file in sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith(".")):
        if file.suffix.lower() in (".md", ".png", ".svg", ".pdf") or not kind_of(read_text(file)):
            continue
        found = True
        yield str(file.relative_to(path)), file
    if not found:
        raise InputError.one(
            "inputs-missing", f"{path} holds no topology input", path="--topo", allowed=ALLOWED
        )
