"""Divvy in Ray Serve: ``request_router_class="divvy.rayserve:ElsaRouter"``, and the base of replicas.

The path of this module is part of its interface: people write it into Serve's configuration files.
"""

from __future__ import annotations

from divvy.adapters.rayserve.replica import SliceReplica, find_slice
from divvy.adapters.rayserve.router import ElsaRouter
from divvy.adapters.rayserve.setting import Setting, read_setting

__all__ = ["ElsaRouter", "Setting", "SliceReplica", "find_slice", "read_setting"]
