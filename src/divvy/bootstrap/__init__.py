"""The composition root: the only place that knows which adapter stands behind which port."""

from __future__ import annotations

from divvy.bootstrap.api import ApiStore, open_for_api
from divvy.bootstrap.engines import (
    AlwaysInSight,
    EngineMaker,
    LiveEngine,
    check_engine,
    create_engine,
    offered_nodes,
)
from divvy.bootstrap.loop import live_loop
from divvy.bootstrap.settings import LiveSettings, default_database, default_home, open_store

__all__ = [
    "AlwaysInSight",
    "ApiStore",
    "EngineMaker",
    "LiveEngine",
    "LiveSettings",
    "check_engine",
    "create_engine",
    "default_database",
    "default_home",
    "live_loop",
    "offered_nodes",
    "open_for_api",
    "open_store",
]
