"""Run by the test of Ray Serve in a network namespace of its own: a cluster of fake-GPU nodes, and queries."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from importlib import import_module

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray
from ray import serve
from ray.cluster_utils import Cluster

from divvy.rayserve import SliceReplica

TABLE = {"1": {"1": 40, "8": 200}, "4": {"1": 20, "8": 60}, "7": {"1": 20, "8": 30}}


class Model(SliceReplica):
    def __init__(self):
        super().__init__()
        self.turn = asyncio.Lock()

    async def __call__(self, query):
        batch = query["inputs"][0]["shape"][0]
        async with self.turn:
            await asyncio.sleep(TABLE[str(self.slice_gpcs)][str(batch)] / 1e3)
        return self.slice_profile


def query(batch):
    return {"inputs": [{"name": "x", "shape": [batch, 1]}]}


def answers(handle, batches):
    return [asked.result() for asked in [handle.remote(query(batch)) for batch in batches]]


def main():
    schema = import_module("ray.serve.schema").ServeDeploySchema
    emitted = schema.model_validate(json.loads(sys.stdin.read()))
    (deployment,) = emitted.applications[0].deployments
    head = {"num_cpus": 2, "object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for slices in ("4g.40gb,1g.10gb", "7g.80gb"):
        cluster.add_node(
            num_cpus=2,
            num_gpus=slices.count(",") + 1,
            object_store_memory=100 << 20,
            env_vars={"DIVVY_SLICES": slices},
        )
    ray.init(address=cluster.address, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": 8011})
    router = deployment.request_router_config
    router = router if isinstance(router, dict) else router.model_dump()
    make = serve.deployment(
        num_replicas=deployment.num_replicas,
        max_ongoing_requests=deployment.max_ongoing_requests,
        ray_actor_options={"num_cpus": 0.1, "num_gpus": 1},
        request_router_config={
            **{key: router[key] for key in ("request_router_class", "request_routing_stats_period_s")},
            "request_router_kwargs": {**router["request_router_kwargs"], "profile": TABLE, "slo_ms": 70},
        },
    )
    handle = serve.run(make(Model).bind(), name="model", route_prefix="/m")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and answers(handle, [1]) != ["1g.10gb"]:
        time.sleep(0.2)  # until every replica has published its slice
    report = {
        "small_alone": answers(handle, [1]),
        "large_alone": answers(handle, [8]),
        "large_together": answers(handle, [8] * 3),
        "small_together": answers(handle, [1] * 4),
    }
    serve.shutdown()
    ray.shutdown()
    cluster.shutdown()
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
