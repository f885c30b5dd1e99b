"""The examples of docs/reference/http-api.md, run as they stand, and its tables held to the routes."""

import json
import re

import pytest

from divvy.control.explain import code_of
from divvy.fleet.reason import Reason
from divvy.service.identity import Role
from documented import DOCS

pytestmark = pytest.mark.e2e

PAGE = (DOCS / "reference" / "http-api.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(
    r"```http\n(?P<method>[A-Z]+) (?P<path>\S+)\n(?P<body>.*?)```\s+```json\n(?P<answer>.*?)```", re.DOTALL
)
ANY = "…"


def matches(expected, found, at=""):
    """Return where an answer differs from an example, empty where it does not."""
    if expected == ANY:
        return ""
    if isinstance(expected, dict) and isinstance(found, dict):
        wanted = {key: value for key, value in expected.items() if key != ANY}
        if ANY not in expected and wanted.keys() != found.keys():
            return f"{at}: members {sorted(wanted.keys() ^ found.keys())}"
        return next(
            (m for k, v in wanted.items() if (m := matches(v, found.get(k, "missing"), f"{at}.{k}"))), ""
        )
    if isinstance(expected, list) and isinstance(found, list):
        open_end = expected[-1:] == [ANY]
        wanted = expected[:-1] if open_end else expected
        if len(found) < len(wanted) or (len(found) > len(wanted) and not open_end):
            return f"{at}: {len(found)} elements"
        return next((m for i, v in enumerate(wanted) if (m := matches(v, found[i], f"{at}[{i}]"))), "")
    return "" if expected == found else f"{at}: {found!r} instead of {expected!r}"


def test_every_example_of_the_reference_works(api):
    examples = list(EXAMPLE.finditer(PAGE))
    assert len(examples) >= 14
    for example in examples:
        expected = json.loads(example["answer"])
        content = example["body"].strip()

        def ask(example=example, content=content):
            body = {"content": content, "headers": {"Content-Type": "application/json"}} if content else {}
            return api.local.request(example["method"], example["path"], **body).json()

        found = ask()
        where = f"{example['method']} {example['path']}"
        if example["method"] == "GET":  # the scheduler may need a moment to come to what the page shows
            api.wait(lambda ask=ask, expected=expected: not matches(expected, ask()) or None, 5)
        else:
            assert not matches(expected, found), f"{where}: {matches(expected, found)}"


def test_every_route_is_in_the_reference(shared_api):
    told = set(re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`? ]+)`", PAGE))
    routes = {
        (method.upper(), path) for path, item in shared_api.app.openapi()["paths"].items() for method in item
    }
    assert routes <= told, sorted(routes - told)
    assert told - routes == {("GET", "/openapi.json")}


def test_every_reason_is_explained():
    page = (DOCS / "explanation" / "explanations.md").read_text(encoding="utf-8")
    reasons = [reason for reason in Reason if not reason.name.startswith("STARTED")]
    assert not [code_of(reason) for reason in reasons if f"`{code_of(reason)}`" not in page]


def test_every_role_is_explained():
    page = (DOCS / "explanation" / "identity.md").read_text(encoding="utf-8")
    assert all(f"| {role.word} |" in page for role in Role)
