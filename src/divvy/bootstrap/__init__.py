"""The composition root: the only place that knows which adapter stands behind which port."""

from __future__ import annotations

from divvy.bootstrap.api import ApiStore, open_for_api
from divvy.bootstrap.engines import EngineMaker, LiveEngine, local_engine, offered_nodes
from divvy.bootstrap.loop import live_loop
from divvy.bootstrap.settings import LiveSettings, default_database, default_home, open_store

__all__ = [
    "ApiStore",
    "EngineMaker",
    "LiveEngine",
    "LiveSettings",
    "default_database",
    "default_home",
    "live_loop",
    "local_engine",
    "offered_nodes",
    "open_for_api",
    "open_store",
]
