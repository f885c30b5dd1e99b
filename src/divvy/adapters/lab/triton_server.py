"""A real Triton server for one slice: run by a Python that has nvidia-pytriton, with nothing of this package.

Standard input: a first line of JSON (model, times_us, http, grpc, metrics); it ends when that is closed. The
model sleeps the table's time (emulated), one query at a time, as a model instance of its own would take it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np


def main() -> None:
    """Serve until standard input is closed."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Triton writes its log to standard output
    decorators, models, servers = (
        import_module(f"pytriton.{name}") for name in ("decorators", "model_config", "triton")
    )
    order = json.loads(sys.stdin.readline())
    times_us = order["times_us"]

    def infer(x: Any) -> list[Any]:
        time.sleep(max(times_us[len(x)], 0) / 1e6)
        return [x]

    config = servers.TritonConfig(
        http_address="127.0.0.1",
        http_port=order["http"],
        grpc_address="127.0.0.1",
        grpc_port=order["grpc"],
        metrics_port=order["metrics"],
        allow_gpu_metrics=False,
        log_verbose=0,
    )
    tensor = {"dtype": np.float32, "shape": (-1,)}
    with servers.Triton(config=config) as triton:
        triton.bind(
            model_name=order["model"],
            infer_func=decorators.batch(infer),
            inputs=[models.Tensor(name="x", **tensor)],
            outputs=[models.Tensor(name="y", **tensor)],
            config=models.ModelConfig(max_batch_size=len(times_us) - 1, batcher=None),
        )
        triton.run()
        answers.write("calibrated\n")
        answers.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
