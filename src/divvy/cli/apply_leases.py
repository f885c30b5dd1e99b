"""Leases of services as jobs of a running control plane."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from divvy.bootstrap import default_home
from divvy.cli.client import Client
from divvy.cli.one_plan import TENANCY, Made
from divvy.cli.submit import environment
from divvy.control.one_plan import tenancy_document
from divvy.errors import InputError
from divvy.fleet.event import Submitted
from divvy.fleet.tenant import Service
from divvy.planners.pipeline import Tenancy
from divvy.units import format_duration


def cancel_and_submit(made: Made, client: Client, home: Path | None) -> list[str]:
    """Submit the leases that services begin, cancel those that they end; return what is left to do.

    Ends come first: they make room. Cutting GPUs is left to `divvy slices apply`, which knows the drivers.

    Raises:
        DivvyError: If the control plane refuses one; those before it stay carried out, and the same plan made
            again goes on from there.
    """
    services = {one.mark: one for one in made.base.tenants.services}
    for event in made.claims:
        if not isinstance(event, Submitted):
            client.delete("jobs", getattr(event, "job", ""))
    ids: dict[str, str] = {}
    for event in made.claims:
        if isinstance(event, Submitted):
            body = _request(services[event.spec.name], allocated=event.spec.allocated)
            ids[event.spec.id] = str(client.post("jobs", body=body)["id"])
    after = _renamed(made.plan.after, ids)
    _keep((home or default_home()).absolute(), after)
    cut = {one.place: one.layout for some in made.base.tenancy.held.values() for one in some}
    return [
        f"{name}: cut {one.place} as {' '.join(f'{p.profile}@{p.start}' for p in one.layout)}"
        for name, some in after.held.items()
        for one in some
        if cut.get(one.place, ()) != one.layout
    ]


def _request(service: Service, *, allocated: bool) -> dict[str, Any]:
    """Return the submission of one lease."""
    return {
        "account": service.account,
        "name": service.mark,
        "gpus": 1,
        "argv": list(service.command),
        "cwd": str(Path.cwd()),
        "env": environment([], inherit=True),
        "min_runtime": format_duration(service.contract) if allocated else "0",
        "resumable": True,
        "priority": 10,
        "model": service.model,
    }


def _renamed(tenancy: Tenancy, ids: Mapping[str, str]) -> Tenancy:
    """Return what services hold under the ids that the control plane gave to new leases."""
    held = {
        name: tuple(replace(one, lease=ids.get(one.lease, one.lease)) for one in some)
        for name, some in tenancy.held.items()
    }
    return replace(tenancy, held=held)


def _keep(home: Path, tenancy: Tenancy) -> None:
    """Keep what services were planned to hold, so that the next plan shows only what is new.

    Raises:
        InputError: If the state directory cannot be written; the leases are submitted all the same.
    """
    try:
        (home / TENANCY).write_text(json.dumps(tenancy_document(tenancy)), encoding="utf-8")
    except OSError as error:
        raise InputError.one("unwritable", f"{home / TENANCY}: {error.strerror}", path="--home") from error
