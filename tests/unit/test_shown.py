"""What is put on the page: kept as it was printed, refused where no page could show it."""

import json

import pytest

from divvy.errors import ConflictError, InputError, NotFoundError
from divvy.service.examples_insight import INSIGHT
from divvy.service.shown import MOST, ShownDocuments

TOPO = INSIGHT["shown_document"]["document"]


def put(documents, name="node", document=TOPO, **more):
    told = {"by": "ada", "at": 1.0, "command": "divvy topo show", "example": False}
    return documents.put(name, document, **(told | more))


def test_a_document_is_kept_listed_given_back_and_removed(tmp_path):
    documents = ShownDocuments(tmp_path / "shown")
    assert documents.listed() == []
    kept = put(documents, example=True)
    assert (kept["view"], kept["example"], kept["title"]) == ("transfers", True, "node1.txt")
    assert documents.listed() == [kept]
    assert documents.get("node")["document"] == TOPO
    put(documents, by="bo")
    assert [one["by"] for one in documents.listed()] == ["bo"], "the same name is replaced"
    documents.remove("node")
    assert documents.listed() == []
    with pytest.raises(NotFoundError):
        documents.remove("node")


@pytest.mark.parametrize("name", ["../x", "a/b", "", "A", ".hidden", "x" * 64, "nul\0"])
def test_a_name_never_leaves_the_directory(tmp_path, name):
    (tmp_path / "x.json").write_text(json.dumps({"kind": "divvy.topo/1"}))
    with pytest.raises(NotFoundError):
        ShownDocuments(tmp_path / "shown").get(name)


def test_all_that_is_wrong_with_a_document_is_said_at_once(tmp_path):
    documents = ShownDocuments(tmp_path / "shown")
    with pytest.raises(InputError) as unknown:
        put(documents, document={"schema": "divvy.status/1"})
    assert unknown.value.code == "shown-kind"
    with pytest.raises(InputError) as torn:
        put(documents, document={"schema": "divvy.topo/1", "name": 3, "links": [{"a": "x"}]})
    assert len(torn.value.faults) > 5
    assert {fault.code for fault in torn.value.faults} == {"shown-shape"}


def test_there_is_a_limit_and_a_damaged_file_is_left_out(tmp_path):
    documents = ShownDocuments(tmp_path)
    for number in range(MOST):
        put(documents, f"n{number}")
    with pytest.raises(ConflictError):
        put(documents, "one-more")
    put(documents, "n0", by="again")
    (tmp_path / "n1.json").write_text("{")
    assert len(documents.listed()) == MOST - 1
