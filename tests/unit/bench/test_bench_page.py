"""What the benchmark of the page says where it has little to say, and its interval."""

import pytest

from divvy.cli import bench_page
from divvy.errors import UnavailableError


def test_an_interval_of_the_median_lies_around_it_and_repeats():
    values = [1.0, 1.01, 0.99, 1.02, 1.0, 0.98, 1.0]
    low, high = bench_page._middle(values)
    assert low <= 1.0 <= high
    assert (low, high) == bench_page._middle(values)


def test_a_page_that_was_never_updated_is_a_figure_without_a_value():
    row = bench_page._times("case", "update", [], 200, "")
    assert (row["value"], row["met"], row["n"], row["note"]) == (None, None, 0, "the page was not updated")


def test_without_a_browser_the_reason_is_told(monkeypatch):
    monkeypatch.setattr(bench_page.shutil, "which", lambda _name: None)
    with pytest.raises(UnavailableError, match="no Chromium"):
        list(bench_page.rows(quick=True, announce=lambda _text: None))
