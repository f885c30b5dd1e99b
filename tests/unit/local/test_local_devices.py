from types import SimpleNamespace

import pytest

from divvy.adapters.local.devices import (
    Book,
    announce,
    faded,
    fading,
    offer_clusters,
    offer_gpus,
    offer_slots,
    parse_shape,
)
from divvy.adapters.local.nvml import Gauge, Gpu, model_of, take_census
from divvy.errors import InputError
from divvy.fleet.device import DEVICE_MODELS
from divvy.fleet.node import Node, NodeState

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "memory", "model"),
    [
        ("NVIDIA H100 80GB HBM3", 81559 * 2**20, "H100-80GB"),
        ("NVIDIA H100 PCIe", 81559 * 2**20, "H100-80GB"),
        ("NVIDIA A100-SXM4-40GB", 40536 * 2**20, "A100-40GB"),
        ("NVIDIA A100 80GB PCIe", 81920 * 2**20, "A100-80GB"),
        ("NVIDIA A30", 24576 * 2**20, "A30-24GB"),
        ("NVIDIA L40S", 46068 * 2**20, "L40S-48GB"),
        ("NVIDIA H200", 143771 * 2**20, "H200-141GB"),
        ("NVIDIA B200", 183359 * 2**20, "B200-180GB"),
        ("Tesla V100-SXM2-32GB", 32768 * 2**20, "V100-32GB"),
        ("Tesla V100-SXM2-16GB", 16384 * 2**20, "V100-16GB"),
        ("NVIDIA GeForce RTX 4090", 24564 * 2**20, "GeForce-RTX-4090"),
        ("", 0, "gpu"),
    ],
)
def test_product_names_become_models(name, memory, model):
    assert model_of(name, memory) == model


def test_models_of_the_price_list_are_met():
    assert {"H100-80GB", "A100-40GB", "L40S-48GB", "H200-141GB", "B200-180GB"} <= set(DEVICE_MODELS)


class FakeNvml:
    class NVMLError(Exception):
        pass

    def __init__(self, mig=(), broken=""):
        self.mig, self.broken, self.open = mig, broken, 0

    def nvmlInit(self):  # noqa: N802
        if self.broken == "init":
            raise self.NVMLError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self):  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self):  # noqa: N802
        if self.broken == "count":
            raise self.NVMLError("Unknown Error")
        return 4

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetName(self, _handle):  # noqa: N802
        return b"NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, _handle):  # noqa: N802
        return SimpleNamespace(total=80 * GIB)

    def nvmlDeviceGetMinorNumber(self, handle):  # noqa: N802
        if self.broken == "minor":
            raise self.NVMLError("Not Supported")
        return 3 - handle

    def nvmlDeviceGetMigMode(self, handle):  # noqa: N802
        if self.broken == "mig":
            raise self.NVMLError("Not Supported")
        return [int(handle in self.mig), 0]

    def nvmlDeviceGetUtilizationRates(self, handle):  # noqa: N802
        if handle == 3:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(gpu=10 * handle)


def test_gpus_are_counted():
    nvml = FakeNvml()
    census = take_census(lambda: nvml)
    assert census.reason == ""
    assert census.gpus[1] == Gpu(1, "GPU-1", "H100-80GB", 2)
    assert len(census.gpus) == 4
    assert nvml.open == 0


@pytest.mark.parametrize(
    ("nvml", "count", "reason"),
    [
        (FakeNvml(broken="init"), 0, "NVML: Driver Not Loaded"),
        (FakeNvml(broken="count"), 0, "NVML: Unknown Error"),
        (FakeNvml(broken="mig"), 4, ""),
        (FakeNvml(mig={1}), 3, "1 of 4 GPUs are partitioned (MIG)"),
    ],
)
def test_gpus_that_cannot_be_had_are_explained(nvml, count, reason):
    census = take_census(lambda: nvml)
    assert (len(census.gpus), census.reason) == (count, reason)


def test_without_the_bindings_there_are_no_gpus():
    def missing():
        raise ImportError

    assert "not installed" in take_census(missing).reason


def test_an_old_driver_counts_device_files_in_order():
    assert [gpu.minor for gpu in take_census(lambda: FakeNvml(broken="minor")).gpus] == [0, 1, 2, 3]


def test_utilisation_is_never_a_false_zero():
    gauge = Gauge(FakeNvml)
    assert gauge.read(2) == (0.2, "")
    assert gauge.read(3) == (None, "NVML: Not Supported")


@pytest.mark.parametrize(("text", "shape"), [("8", (1, 8)), ("2x4", (2, 4)), (" 3 x 1 ", (3, 1))])
def test_shapes_are_read(text, shape):
    assert parse_shape(text) == shape


@pytest.mark.parametrize("text", ["", "0", "0x4", "4x0", "x4", "2x4x1", "-1", "2*4", "four"])
def test_what_is_no_shape_is_refused(text):
    with pytest.raises(ValueError, match="is not a shape"):
        parse_shape(text)


def test_one_machine_can_be_several_nodes():
    nodes = offer_slots("box", 2, 3)
    assert [node.name for node in nodes] == ["box-1", "box-2"]
    assert [device.ordinal for node in nodes for device in node.devices] == [0, 1, 2, 3, 4, 5]
    assert nodes[0].to_node() == Node("box-1", 3, "cpu-slot", 1)
    assert [node.name for node in offer_slots("box", 1, 2)] == ["box"]


def gpu(number, model="H100-80GB"):
    return Gpu(number, f"GPU-{number}", model, number)


def test_gpus_become_a_node_per_model_or_the_shape_asked_for():
    mixed = [gpu(0), gpu(1, "A30-24GB"), gpu(2)]
    nodes = offer_gpus("box", mixed)
    assert [(node.name, [d.ordinal for d in node.devices]) for node in nodes] == [
        ("box-H100-80GB", [0, 2]),
        ("box-A30-24GB", [1]),
    ]
    assert nodes[0].to_node().weight == 989
    assert [n.name for n in offer_gpus("box", [gpu(0), gpu(1)])] == ["box"]
    shaped = offer_gpus("box", [gpu(n) for n in range(4)], (2, 2))
    assert [[d.ordinal for d in node.devices] for node in shaped] == [[0, 1], [2, 3]]
    for shape, gpus in (((2, 4), [gpu(0)]), ((1, 3), mixed)):
        with pytest.raises(InputError, match="cannot be offered in this shape"):
            offer_gpus("box", gpus, shape)


def test_a_book_gives_the_lowest_free_devices_whole_or_not_at_all():
    book = Book(offer_slots("box", 2, 2))
    assert book.take("a", [("box-1", 1), ("box-2", 2)]) == (("box-1", (0,)), ("box-2", (0, 1)))
    assert book.take("b", [("box-1", 1), ("box-2", 1)]) is None
    assert book.take("b", [("box-1", 1)]) == (("box-1", (1,)),)
    assert book.holders() == {"box-1": ("a", "b"), "box-2": ("a", "a")}
    book.release("a")
    book.release("a")
    assert book.holders() == {"box-1": ("", "b"), "box-2": ("", "")}
    assert [device.ordinal for device in book.others((("box-1", (1,)),))] == [0, 2, 3]


def test_a_book_lets_be_what_is_offered_no_more():
    book = Book(offer_slots("box", 1, 2))
    book.claim("old", (("box", (1, 5)), ("gone", (0,))))
    assert book.holders() == {"box": ("", "old")}
    book.release("old")
    assert book.holders() == {"box": ("", "")}
    assert "is not node gone (it is box)" in book.misfit([("gone", 1)])
    assert "has 2 devices, 3 are asked for" in book.misfit([("box", 3)])
    assert book.misfit([("box", 2)]) == ""


def test_nodes_are_announced_when_they_differ_from_what_is_known():
    offered = offer_slots("box", 1, 4)
    node = offered[0].to_node()
    assert [change.node for change in announce(offered, [], (), 7)] == [node]
    assert announce(offered, [node], (), 7) == []
    drained = Node("box", 2, "cpu-slot", 1, "rail-1", NodeState.DRAINING, "by ada: new fans")
    (change,) = announce(offered, [drained], (), 7)
    assert change.node == Node("box", 4, "cpu-slot", 1, "rail-1", NodeState.DRAINING, "by ada: new fans")
    (gone,) = announce((), [node], (), 7)
    assert (gone.node.state, gone.node.cause) == (NodeState.DOWN, "no longer offered by the local engine")
    assert announce((), [gone.node], (), 8) == []
    (back,) = announce(offered, [gone.node], (), 9)
    assert (back.node.state, back.node.cause) == (NodeState.UP, "")


def test_a_node_that_is_offered_no_more_drains_while_something_runs_on_it():
    node = offer_slots("box", 1, 4)[0].to_node()
    changes = announce((), [node], {"box"}, 7)
    assert changes[0].node.state is NodeState.DRAINING
    assert fading(changes) == [changes[0].node]
    down = faded(changes[0].node, 9)
    assert (down.at, down.node.state, down.node.gpus) == (9, NodeState.DOWN, 4)
    assert fading([down, *announce((), [node], (), 7)]) == []
    (again,) = announce(
        (), [changes[0].node], {"box"}, 8
    )  # restarted meanwhile: said again, to be watched again
    assert fading([again]) == [changes[0].node]


def test_slots_may_be_in_several_clusters_and_no_ordinal_comes_twice():
    nodes = offer_clusters("box", "east:2x2, west:3")
    assert [(node.name, node.cluster, [d.ordinal for d in node.devices]) for node in nodes] == [
        ("box-east-1", "east", [0, 1]),
        ("box-east-2", "east", [2, 3]),
        ("box-west", "west", [4, 5, 6]),
    ]
    assert nodes[2].to_node().cluster == "west"


@pytest.mark.parametrize("text", ["east:", ":2", "east:2,east:2", "east:2,4", "e st:2", "east:2x0"])
def test_what_is_no_list_of_clusters_is_refused(text):
    with pytest.raises(ValueError, match="write"):
        offer_clusters("box", text)
