"""A back-ends file whose objective no query could have is refused."""

from __future__ import annotations

import json

import pytest

from divvy.adapters.front.config import SCHEMA, read_setup
from divvy.errors import InputError


@pytest.mark.parametrize("slo", ["1e308", "864000001", "0", "-1", '"50"', "true", "9" * 400])
def test_an_objective_beyond_what_is_allowed(slo):
    words = {"schema": SCHEMA, "model": "m", "profile": "fitted:resnet50", "slo_ms": 7, "slices": []}
    text = json.dumps(words)
    assert read_setup(text, "b.json").slo_us == 7_000
    with pytest.raises(InputError) as caught:
        read_setup(text.replace("7", slo), "b.json")
    assert [fault.path for fault in caught.value.faults] == ["slo_ms"]
