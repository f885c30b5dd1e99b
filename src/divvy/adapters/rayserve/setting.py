"""The keyword arguments of the router (`request_router_kwargs`), and the deployment that carries them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from divvy.errors import Fault, InputError
from divvy.perf.fitted import fitted_profile
from divvy.perf.latency import INFEASIBLE, Cell, LatencyProfile
from divvy.perf.profile_csv import read_profile
from divvy.planners.queries.registry import RULES, find_rule
from divvy.planners.queries.rule import Rule

_FITTED: Final = "fitted:"
_KNOWN: Final = ("profile", "slo_ms", "rule")
_LONGEST_MS: Final = 864e6


@dataclass(frozen=True)
class Setting:
    """How the router decides.

    Attributes:
        profile: Latencies of the model.
        largest: Largest batch of the profile.
        slo_us: Objective of a query whose header says nothing, microseconds.
        rule: A rule that binds on arrival.
        params: Its parameters.
    """

    profile: LatencyProfile
    largest: int
    slo_us: int
    rule: Rule
    params: tuple[float, ...]


def read_setting(given: Mapping[str, Any]) -> Setting:
    """Return the setting in `request_router_kwargs`.

    Args:
        given: ``profile`` (``fitted:MODEL``, a CSV file, or {compute slices: {batch: milliseconds}}),
            ``slo_ms``, and ``rule`` (such as ``elsa:alpha=1,beta=1``; that is the default).

    Raises:
        InputError: With everything that is wrong.
    """
    faults = [Fault("rayserve-kwargs", key, "not known", ", ".join(_KNOWN)) for key in set(given) - {*_KNOWN}]
    slo = given.get("slo_ms")
    if isinstance(slo, bool) or not isinstance(slo, int | float) or not 0 < slo <= _LONGEST_MS:
        faults.append(Fault("rayserve-kwargs", "slo_ms", f"{slo!r}", "milliseconds above 0"))
    rule, params = find_rule(str(given.get("rule", "elsa")))
    if rule.choose is None:
        eager = ", ".join(name for name, one in RULES.items() if one.choose is not None)
        faults.append(
            Fault("rayserve-rule", "rule", f"{rule.name} binds late; Ray Serve binds on arrival", eager)
        )
    try:
        profile = _profile(given.get("profile"))
    except InputError as error:
        faults += error.faults
    if faults:
        raise InputError("request_router_kwargs have faults", faults)
    largest = max(cell.batch for cell in profile.cells)
    return Setting(profile, largest, round(float(slo or 0) * 1e3), rule, params)


def _profile(given: Any) -> LatencyProfile:
    if isinstance(given, Mapping):
        return _table(given)
    if not isinstance(given, str) or not given:
        raise InputError.one(
            "rayserve-kwargs", f"{given!r}", path="profile", allowed="fitted:MODEL, a file, a table"
        )
    if given.startswith(_FITTED):
        return fitted_profile(given.removeprefix(_FITTED))
    try:
        return read_profile(Path(given).read_text(encoding="utf-8"), Path(given).stem, given)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError.one("rayserve-kwargs", f"{given}: {error}", path="profile") from error


def _table(given: Mapping[Any, Any]) -> LatencyProfile:
    """Return the profile in a table of milliseconds by compute slices and batch."""
    cells = []
    try:
        for gpcs, row in given.items():
            for batch, milliseconds in row.items():
                time = float(milliseconds)
                if not 0 <= time <= _LONGEST_MS or int(gpcs) < 1 or int(batch) < 1:
                    raise ValueError(f"{gpcs}g, batch {batch}: {milliseconds}")  # noqa: TRY301 - one answer
                cells.append(Cell(int(gpcs), int(batch), 1, round(time * 1e3) or INFEASIBLE))
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError.one(
            "rayserve-kwargs",
            f"no table: {error}",
            path="profile",
            allowed="{compute slices: {batch: milliseconds, 0: does not fit}}",
        ) from error
    if not cells:
        raise InputError.one("rayserve-kwargs", "an empty table", path="profile")
    return LatencyProfile("table", tuple(cells), "request_router_kwargs")


def table_of(profile: LatencyProfile, sizes: Sequence[int], largest: int) -> dict[str, dict[str, float]]:
    """Return a profile as `request_router_kwargs` carry it, so that no node needs the file."""
    every = sorted({cell.batch for cell in profile.cells if cell.processes == 1})
    batches = [b for b in every if b <= largest] + [b for b in every if b > largest][:1]
    table: dict[str, dict[str, float]] = {}
    for gpcs in sizes:
        times = {batch: profile.latency_us(gpcs, batch) for batch in batches}
        table[str(gpcs)] = {str(b): 0.0 if t == INFEASIBLE else t / 1e3 for b, t in times.items()}
    return table


def deployment_yaml(
    slices: Sequence[int], table: Mapping[str, Mapping[str, float]], slo_ms: float, model: str
) -> str:
    """Return a Serve config file (``serve deploy FILE``): one replica per slice under `ElsaRouter`.

    Args:
        slices: Compute slices of every slice of the fleet.
        table: The profile, as `table_of` gives it.
        slo_ms: Objective of a query.
        model: Name of the model: the deployment's.
    """
    rows = "".join(f'            "{gpcs}": {json.dumps(row)}\n' for gpcs, row in table.items())
    return (
        "# serve deploy FILE. Start each node's Ray with its slices in CUDA_VISIBLE_DEVICES (MIG UUIDs);\n"
        "# the deployment's class derives from divvy.rayserve.SliceReplica.\n"
        f"applications:\n- name: {model}\n  route_prefix: /\n"
        "  import_path: my_model:app  # yours: the bound deployment of this name\n"
        f"  deployments:\n  - name: {model}\n    num_replicas: {len(slices)}\n"
        "    max_ongoing_requests: 32\n    ray_actor_options:\n      num_gpus: 1\n"
        "    request_router_config:\n      request_router_class: divvy.rayserve:ElsaRouter\n"
        "      request_routing_stats_period_s: 1.0\n      request_router_kwargs:\n"
        f"        rule: elsa\n        slo_ms: {slo_ms:g}\n        profile:\n{rows}"
    )
