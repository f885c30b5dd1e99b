"""The merged graph comes back from its document as it was; a damaged document is refused whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from divvy.errors import InputError
from divvy.fleet.topology.read import build

MATRIX = """\
        GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity
GPU0     X      NV4     PIX     0-7     0
GPU1    NV4      X      SYS     8-15    1
NIC0    PIX     SYS      X
"""


def document() -> dict[str, Any]:
    return build([("m.txt", MATRIX)]).to_json()


def test_a_graph_comes_back_as_it_was() -> None:
    whole = document()
    again = build([("merged.json", json.dumps(whole))]).to_json()
    assert again == whole


def test_a_merged_graph_is_given_alone() -> None:
    with pytest.raises(InputError, match="merged graph already"):
        build([("merged.json", json.dumps(document())), ("m.txt", MATRIX)])


@pytest.mark.parametrize(
    ("member", "row"),
    [
        ("vertices", {"id": "GPU0", "kind": "gpu"}),
        ("vertices", {"id": "x", "kind": "toaster"}),
        ("vertices", "x"),
        ("links", {"a": "GPU0", "b": "nowhere", "kind": "pcie", "gb_per_s": 1.0}),
        ("links", {"a": "GPU0", "b": "GPU1", "kind": "pcie", "gb_per_s": -1.0}),
        ("links", {"a": "GPU0", "b": "GPU1", "kind": "pcie", "gb_per_s": float("nan")}),
        ("links", {"a": "GPU0", "b": "GPU1", "kind": "pcie", "gb_per_s": 1.0, "source": "dream"}),
        ("pairs", {"a": "GPU0"}),
        ("warnings", {"code": "x"}),
    ],
)
def test_a_damaged_row_is_named(member: str, row: object) -> None:
    body = document()
    body[member].append(row)
    with pytest.raises(InputError) as caught:
        build([("merged.json", json.dumps(body))])
    assert member in caught.value.faults[0].path


@pytest.mark.parametrize("cut", [40, 400])
def test_a_truncated_document_is_refused(cut: int) -> None:
    text = json.dumps(document())
    with pytest.raises(InputError):
        build([("merged.json", text[:-cut])])


def test_an_empty_document_is_refused() -> None:
    with pytest.raises(InputError, match="no merged graph"):
        build([("merged.json", '{"schema": "divvy.topo/1"}')])
