"""The Ray engine, wired: where the cluster is, and whose its runs are."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import structlog

from divvy.adapters.ray.api import RayApi
from divvy.adapters.ray.engine import RayEngine
from divvy.bootstrap.engines import LiveEngine, World
from divvy.bootstrap.settings import LiveSettings
from divvy.errors import InputError

_log = structlog.get_logger("bootstrap")

#: Where Ray's dashboard listens by default.
DEFAULT_ADDRESS: Final = "http://127.0.0.1:8265"


class _RayEngine(RayEngine):
    """The Ray engine, as the loop asks for it."""

    def devices(self) -> None:
        """Return nothing: which device is whose is Ray's to tell."""

    def heed(self, plan: object) -> None:
        """Do nothing: orders tell everything."""


def check_address(address: str) -> str:
    """Return the URL of the dashboard.

    Raises:
        InputError: If it cannot be one.
    """
    url = address or DEFAULT_ADDRESS
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        sound = False
    if not sound:
        raise InputError.one(
            "ray-address",
            f"{url!r} is not the address of a Ray dashboard",
            path="--ray-address",
            allowed="http://HOST:PORT",
            fix="take the address that `ray start --head` prints for the dashboard",
        )
    return url.rstrip("/")


def owner_of(settings: LiveSettings) -> str:
    """Return how the submission ids of a control plane begin: the same for as long as its store lives."""
    if not settings.database.startswith("sqlite"):
        word = hashlib.sha256(settings.database.rpartition("@")[2].encode()).hexdigest()[:8]
        return f"divvy-{word}-"
    file = Path(settings.home) / "ray-owner"
    if not file.exists():
        file.write_text(secrets.token_hex(4), encoding="utf-8")
    return f"divvy-{file.read_text(encoding='utf-8').strip()}-"


def make(settings: LiveSettings, world: World) -> LiveEngine:
    """Make the engine.

    Raises:
        InputError: If its settings cannot be used.
    """
    address, owner = check_address(settings.engine_address), owner_of(settings)
    _log.info("ray", address=address, owner=owner)
    api = RayApi(address, owner)
    return _RayEngine(api, owner, Path(settings.home), world.details, world.snapshot, world.clock)
