from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from divvy.service.schemas.published import published, text

FILES = Path(__file__).parents[2] / "docs" / "reference" / "schemas"
SCHEMAS = published()


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_files_say_what_the_models_say(name):
    written = (FILES / name).read_text(encoding="utf-8")
    assert written == text(SCHEMAS[name]), (
        "write them again: python -m divvy.service.schemas.published docs/..."
    )
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


def test_a_published_schema_permits_members_that_come_later():
    document = {"schema": "divvy.cancel/1", "job": "j1", "state": "queued"}
    jsonschema.validate(document | {"later": 1}, SCHEMAS["cancel.1.json"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": "divvy.cancel/1", "job": "j1"}, SCHEMAS["cancel.1.json"])
