"""One real Ray cluster for all tests of this directory: nodes with fake GPUs on loopback addresses."""

import importlib.util
import sys
import tempfile
from pathlib import Path

import pytest
from ray_world import Cluster, Plane

HEAD, OTHERS = "alpha", ("bravo",)


@pytest.fixture(scope="module")
def cluster():
    if importlib.util.find_spec("ray") is None or not (Path(sys.executable).parent / "ray").exists():
        pytest.skip("Ray is not installed: make engines")
    with tempfile.TemporaryDirectory(prefix="ray-") as directory:
        running = Cluster(Path(directory))
        try:
            running.start(HEAD, OTHERS)
            yield running
        finally:
            running.stop()


@pytest.fixture(scope="module")
def plane(cluster, tmp_path_factory):
    running = Plane(cluster, tmp_path_factory.mktemp("ray") / "home")
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture
def control(plane):
    """The one control plane of all tests; what a test leaves is ended, so that the next finds a free cluster."""
    yield plane
    plane.clear()
