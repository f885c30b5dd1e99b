"""Where notices come from: what happened to jobs, and the last published view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from divvy.service.ports import PublishedRow


class Occurrence(Protocol):
    """Something that happened to a job, with what is to be said of the job."""

    @property
    def id(self) -> int:
        """Return its number; they grow."""

    @property
    def at(self) -> int:
        """Return when, ms."""

    @property
    def event(self) -> str:
        """Return the event's name."""

    @property
    def detail(self) -> Mapping[str, Any]:
        """Return its fields, and those of the decision behind it."""

    @property
    def job(self) -> str:
        """Return the job."""

    @property
    def name(self) -> str:
        """Return what people call it."""

    @property
    def account(self) -> str:
        """Return who pays."""

    @property
    def author(self) -> str:
        """Return who submitted it."""

    @property
    def gpus(self) -> int:
        """Return its devices."""


class NoticeReader(Protocol):
    """What notifications are made from; may be read from any thread."""

    def happened(self, after: int, limit: int) -> list[Any]:
        """Return the next occurrences after a number, oldest first."""

    def newest_happened(self) -> int:
        """Return the number of the newest occurrence."""

    def published(self, newer_than: int = -1) -> PublishedRow | None:
        """Return the published view."""
