"""The parts of the Ray Serve router that need no Ray: sizes, settings, slices, the emitted deployment."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from divvy.adapters.rayserve.query import batch_of, headers_of, slo_us_of
from divvy.adapters.rayserve.replica import SliceReplica, find_slice, gpcs_of
from divvy.adapters.rayserve.setting import deployment_yaml, read_setting, table_of
from divvy.errors import InputError, NotFoundError, UnavailableError
from divvy.perf.fitted import fitted_profile


@pytest.mark.parametrize(
    ("args", "kwargs", "headers", "batch"),
    [
        (({"inputs": [{"shape": [8, 3]}]},), {}, {}, 8),
        ((np.zeros((5, 2)),), {}, {}, 5),
        (([1, 2, 3],), {}, {}, 3),
        ((object(),), {"batch": 4}, {}, 4),
        (([1, 2],), {}, {"divvy-batch": "16"}, 16),
        (([1, 2],), {}, {"divvy-batch": "-3"}, 2),
        (({"inputs": []}, "text"), {}, {"divvy-batch": "nan"}, 1),
        ((), {}, {}, 1),
        (({"inputs": [{"shape": [True]}]},), {}, {}, 1),
    ],
)
def test_the_size_of_a_query_is_what_it_says_first(args, kwargs, headers, batch):
    assert batch_of(args, kwargs, headers) == batch


def test_headers_come_from_the_scope_of_rays_proxy_and_else_there_are_none():
    request = SimpleNamespace(_asgi_scope={"headers": [(b"Divvy-SLO-ms", b"12.5")]})
    assert slo_us_of(headers_of((request,)), 7) == 12_500
    assert headers_of(("x",)) == {} and slo_us_of({"divvy-slo-ms": "-1"}, 7) == 7


def test_settings_name_every_fault_at_once():
    with pytest.raises(InputError) as caught:
        read_setting({"profile": {"7": {"1": "fast"}}, "slo_ms": "soon", "rule": "divvy", "colour": 1})
    text = str(caught.value)
    for word in ("colour", "slo_ms", "binds late", "elsa", "no table"):
        assert word in text
    with pytest.raises(NotFoundError):
        read_setting({"profile": "fitted:resnet50", "slo_ms": 10, "rule": "best"})
    for profile in ({}, "", "no/such/file.csv", 3, {"1": {"1": -1}}):
        with pytest.raises(InputError):
            read_setting({"profile": profile, "slo_ms": 10})


def test_a_table_carries_a_profile_whole():
    profile = fitted_profile("resnet50")
    setting = read_setting({"profile": json.loads(json.dumps(table_of(profile, (1, 7), 32))), "slo_ms": 20})
    for gpcs in (1, 7):
        for batch in (1, 3, 32):
            assert setting.profile.latency_us(gpcs, batch) == pytest.approx(
                profile.latency_us(gpcs, batch), abs=1
            )
    assert setting.slo_us == 20_000 and setting.rule.name == "elsa"


def test_a_replica_finds_its_slice_or_says_what_to_do():
    node = {"DIVVY_SLICES": "4g.40gb, 2g.20gb,1g.10gb"}
    assert find_slice(node, "1") == "2g.20gb"
    with pytest.raises(UnavailableError, match="DIVVY_SLICES"):
        find_slice(node, "3")
    with pytest.raises(UnavailableError):
        find_slice({}, "")
    assert SliceReplica("3g.40gb").record_routing_stats() == {"divvy_slice": "3g.40gb", "divvy_gpcs": 3}
    assert gpcs_of(None) is None and gpcs_of({"divvy_gpcs": 3}) == 3
    with pytest.raises(InputError):
        gpcs_of({"divvy_gpcs": "three"})


def test_the_emitted_deployment_has_a_replica_per_slice_and_its_own_router():
    table = table_of(fitted_profile("resnet50"), (1, 7), 32)
    document = yaml.safe_load(deployment_yaml((7, 1, 1), table, 19.5, "resnet50"))
    (deployment,) = document["applications"][0]["deployments"]
    assert deployment["num_replicas"] == 3
    given = deployment["request_router_config"]["request_router_kwargs"]
    assert read_setting(given).slo_us == 19_500
