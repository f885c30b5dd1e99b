"""What the command line makes of text, times, widths and addresses; no server, no terminal."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divvy.cli.client import SYSTEM_HOME, _path, find_target
from divvy.cli.refusal import nearest, print_error
from divvy.cli.render import Column, Screen, cells, clean, gauge, number, seconds, spans
from divvy.cli.statement import moment
from divvy.cli.submit import environment
from divvy.errors import Fault, InputError

COLUMNS = (
    Column("Job"),
    Column("Name", shrink=4, drop=1),
    Column("Devices", right=True, drop=2),
    Column("Why", shrink=6),
)


def shown(rows: list[tuple[str, ...]], width: int | None) -> list[str]:
    """Return a table as a terminal of a width shows it."""
    screen = Screen(io.StringIO())
    screen.width = width
    screen.table(COLUMNS, rows)
    return screen.stream.getvalue().splitlines()


@given(
    st.lists(st.tuples(*[st.text(st.characters(codec="utf-8"), max_size=30)] * 4), min_size=1, max_size=5),
    st.integers(12, 120),
)
def test_a_table_fits_or_shows_nothing_but_what_must_be_whole(rows, width):
    rows = [(f"j{number:07d}", *row[1:]) for number, row in enumerate(rows)]
    lines = [line for line in shown(rows, width) if not line.startswith("too narrow")]
    assert len(lines) == len(rows) + 1
    assert all(job == line[: len(job)] for (job, *_), line in zip(rows, lines[1:], strict=True))
    must = 8 + 2 + 6  # the id, a gap, and the least of the last column
    assert max(map(cells, lines)) <= max(width, must)


def test_without_a_width_nothing_is_cut():
    lines = shown([("j1", "n" * 300, "8", "w" * 300)], None)
    assert "n" * 300 in lines[1]
    assert "w" * 300 in lines[1]


def test_a_cut_is_marked_and_a_hidden_column_named():
    lines = shown([("j0000001", "a-long-name", "8", "because of something")], 26)
    assert "…" in lines[1]
    assert lines[-1] == "too narrow for: name (--no-truncate shows all)"


@given(st.text())
def test_no_text_can_drive_a_terminal(text):
    cleaned = clean(text)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in cleaned)
    assert clean(cleaned) == cleaned


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=6), st.integers(6, 200))
def test_a_gauge_is_as_wide_as_it_should_be_and_hides_no_part(amounts, width):
    bar = gauge([(amount, chr(97 + i), "") for i, amount in enumerate(amounts)], width)
    if sum(amounts) == 0:
        assert bar == ()
    else:
        assert sum(len(span.text) for span in bar) == width
        assert len(bar) == sum(amount > 0 for amount in amounts)


def test_what_is_not_known_is_no_zero():
    assert number(None) == seconds(None) == "-"
    assert (number(0.0), number(0.012), number(1234.56), seconds(0.0)) == ("0.0", "0.012", "1,234.6", "0s")
    assert spans("x")[0].text == "x"


def test_the_nearest_name_is_found_by_its_end_too():
    names = "lab.vision.mapping, lab.vision.perception, product.search"
    assert nearest(Fault("account-unknown", "account", "no account 'mapping'", names)) == "lab.vision.mapping"
    assert nearest(Fault("account-unknown", "account", "no account 'lab.serach'", names)) == "product.search"
    assert nearest(Fault("account-unknown", "account", "no account 'zzz'", names)) == ""
    assert nearest(Fault("share-sum", "x", "'mapping' is too much", names)) == ""


def test_times_are_durations_back_or_dates():
    assert moment("2h", "--from", 10_000.0) == 2_800.0
    assert moment("1970-01-02T00:00:00+00:00", "--from", 0) == 86_400.0
    with pytest.raises(InputError, match="not a time"):
        moment("yesterday", "--from", 0)


def test_all_faults_of_an_environment_come_at_once():
    with pytest.raises(InputError) as refused:
        environment(["A=1", "B", "=C"], inherit=False)
    assert [fault.message for fault in refused.value.faults] == ["'B' sets nothing", "'=C' sets nothing"]


def test_a_name_cannot_leave_its_place_in_a_path():
    assert _path(("jobs", "../tokens?x=1#"), {"from_": 1.5, "hours": True, "to": None, "account": ""}) == (
        "/v1/jobs/..%2Ftokens%3Fx%3D1%23?from=1.5&hours=true"
    )


def test_the_own_control_plane_comes_before_that_of_the_machine(monkeypatch, tmp_path):
    for name in ("DIVVY_HOME", "DIVVY_SERVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / ".local/share/divvy"
    own.mkdir(parents=True)
    (own / "socket").touch()
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    assert find_target().path == own / "socket"
    (own / "socket").unlink()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    if not (SYSTEM_HOME / "socket").exists():
        assert find_target().path == SYSTEM_HOME / "socket"
    monkeypatch.setenv("DIVVY_HOME", "/elsewhere")
    assert find_target().path == Path("/elsewhere/socket")
    monkeypatch.setenv("DIVVY_SERVER", "https://divvy.example:8470/")
    assert find_target() == find_target("https://divvy.example:8470")
    assert find_target("unix:/x/y").path == Path("/x/y")


@pytest.mark.parametrize(
    "address", ["somewhere", "ftp://host", "http://", "http://h:x", "http://h:99999", "http://h/v1"]
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(InputError, match="is not the address of a server"):
        find_target(address)


@pytest.mark.parametrize(("path", "told"), [("/proc/nope", True), ("lab.toml:3", True), ("warmup", False)])
def test_an_error_names_the_place_it_is_about_unless_that_is_an_option(capsys, path, told):
    print_error(InputError.one("some-code", "cannot write", path=path), as_json=False)
    assert (f"where    {path}" in capsys.readouterr().err) is told
