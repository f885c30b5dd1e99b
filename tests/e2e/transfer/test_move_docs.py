"""The example of the library's page runs as it is written."""

from __future__ import annotations

import pytest

from documented import DOCS, blocks

pytestmark = pytest.mark.e2e


def test_the_example_of_the_library_runs():
    (example,) = blocks(DOCS / "reference" / "move.md", "python")
    exec(compile(example, "move.md", "exec"), {})  # noqa: S102 - the page's own example
