"""Places and the buffers in them: what may be read and written, by which name, in which use."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from divvy.errors import DeniedError, InputError, NotFoundError
from divvy.transfer.machine.cut import Descriptor

KINDS: Final = ("dram", "file")


@dataclass(frozen=True, slots=True)
class Place:
    """Where bytes are.

    Attributes:
        host: Name of the agent.
        kind: ``dram`` or ``file``.
        device: Number of the device of that kind (NUMA node, drive).
    """

    host: str
    kind: str = "dram"
    device: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the place as reports show it."""
        return {"host": self.host, "kind": self.kind, "device": self.device}


@dataclass(slots=True)
class Region:
    """A buffer with a name.

    Attributes:
        name: Name, unique in its agent.
        place: Where it is.
        view: Its bytes.
        writable: Whether peers may write it.
        epoch: Use of the buffer; each transfer is bound to the use that it was opened in.
    """

    name: str
    place: Place
    view: memoryview
    writable: bool = True
    epoch: int = 1
    final: Path | None = None
    part: Path | None = None
    _map: mmap.mmap | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Return its bytes."""
        return self.view.nbytes

    def slices(self, fragments: Sequence[Descriptor], *, source: bool) -> list[memoryview]:
        """Return the bytes of fragments."""
        view = self.view
        if source:
            return [view[f.source : f.source + f.size] for f in fragments]
        return [view[f.target : f.target + f.size] for f in fragments]

    def keep(self) -> None:
        """Make a received file visible under its name, whole."""
        if self._map is not None and self.part is not None and self.final is not None:
            self._map.flush()
            self.part.replace(self.final)
            self.part = None

    def close(self) -> None:
        """Give up the buffer; a file that was not kept disappears."""
        if self._map is not None:
            # Slices may still be in the hands of threads that are refused any write: the last one unmaps.
            self.view, self._map = memoryview(b""), None
        if self.part is not None:
            self.part.unlink(missing_ok=True)
            self.part = None


def inside(path: str, roots: Sequence[Path]) -> Path:
    """Return the real path of a file that peers may use.

    Raises:
        DeniedError: If it is not below one of the roots, links followed.
    """
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(os.path.realpath(root)) for root in roots):
        shown = ", ".join(str(root) for root in roots) or "none: start the agent with --root"
        raise DeniedError.one("path-outside", f"{path} is outside what this agent shares", allowed=shown)
    return real


def source_file(host: str, path: Path) -> Region:
    """Return a region over a file that is read.

    Raises:
        NotFoundError: If there is no such file.
        InputError: If it is empty or no file.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                raise InputError.one("file-empty", f"{path} is empty: there is nothing to move")
            mapped = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
    except FileNotFoundError as error:
        raise NotFoundError.one("file-missing", f"no file {path}") from error
    except OSError as error:
        raise InputError.one("file-unreadable", f"{path}: {error.strerror}") from error
    return Region(str(path), Place(host, "file"), memoryview(mapped), writable=False, _map=mapped)


def target_file(host: str, path: Path, size: int, mark: str) -> Region:
    """Return a region over a file that will be written; it appears under its name only when it is whole.

    Raises:
        InputError: If it cannot be made, or a directory, a device or the like has its name.
    """
    if path.exists() and not path.is_file():  # the whole file would take its place
        raise InputError.one(
            "file-unwritable",
            f"{path} is no plain file",
            allowed="a new file, or a plain file that is replaced",
            fix="name a file",
        )
    part = path.with_name(f".{path.name}.{mark}.part")
    try:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
            mapped = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError.one("file-unwritable", f"{path}: {error.strerror}") from error
    return Region(str(path), Place(host, "file"), memoryview(mapped), final=path, part=part, _map=mapped)
