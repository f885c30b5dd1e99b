"""A controller that reads over slurmrestd's Unix socket; orders and accounting go by Slurm's commands."""

from __future__ import annotations

import time
from typing import Any

import httpx

from divvy.adapters.slurm.record import View
from divvy.adapters.slurm.rest import v0_0_38
from divvy.adapters.slurm.settings import SlurmSettings
from divvy.adapters.slurm.shell import CommandLine
from divvy.errors import UnavailableError


class RestReader(CommandLine):
    """Reads over slurmrestd.

    Args:
        settings: How this Slurm is reached.
    """

    def __init__(self, settings: SlurmSettings) -> None:
        super().__init__(settings)
        transport = httpx.HTTPTransport(uds=settings.rest_socket)
        self._http = httpx.Client(
            transport=transport, base_url="http://slurmrestd", timeout=settings.timeout / 1000
        )

    def read(self, now: int, accounting: frozenset[str]) -> View:
        """Return what Slurm shows.

        Raises:
            UnavailableError: If it does not answer, or not with what can be understood.
        """
        began = time.monotonic()
        try:
            jobs = v0_0_38.read_jobs(self._get("jobs"))
            nodes = v0_0_38.read_nodes(self._get("nodes"))
            reservations = v0_0_38.read_reservations(self._get("reservations"), now)
            past, asked = self.past(accounting)
        except (ValueError, KeyError, TypeError) as error:
            what = f"what slurmrestd answers cannot be read: {error!r}"
            raise UnavailableError.one("slurm-answer", what) from error
        took = (time.monotonic() - began) * 1000
        return View(now, jobs, nodes, reservations, past, asked, took_ms=took, calls=3 + bool(accounting))

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _get(self, kind: str) -> dict[str, Any]:
        try:
            answer = self._http.get(v0_0_38.PATHS[kind])
            answer.raise_for_status()
        except httpx.HTTPError as error:
            raise UnavailableError.one("slurm-silent", f"slurmrestd: {error}") from error
        document = answer.json()
        if not isinstance(document, dict):
            raise UnavailableError.one(
                "slurm-answer", "slurmrestd answers with something else than an object"
            )
        return document
