"""One real Ray cluster for all tests of this directory: nodes with fake GPUs on loopback addresses."""

import importlib.util
import itertools
import sys
import tempfile
from pathlib import Path

import pytest
from ray_world import Cluster, Plane

HEAD, OTHERS = "alpha", ("bravo", "charlie")


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


@pytest.fixture
def plane(cluster, tmp_path):
    made = []
    numbers = itertools.count()

    def make(**options):
        each = Plane(cluster, tmp_path / f"home{next(numbers)}", **options)
        made.append(each)
        return each.start()

    yield make
    for each in made:
        each.close()
