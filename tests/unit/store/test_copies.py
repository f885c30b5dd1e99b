"""Stores that are copied, put back, and of an earlier Divvy."""

import os
import sqlite3
import stat
import sys
import threading
from pathlib import Path

import pytest

from divvy.adapters.store import archive
from divvy.adapters.store.copies import copy_out, inspect, put_back
from divvy.adapters.store.database import open_database
from divvy.adapters.store.reader import Reader
from divvy.adapters.store.schema import HEAD, prepare
from divvy.cli import main
from divvy.control.journal import replay
from divvy.errors import DivvyError
from divvy.fleet.job import Phase
from divvy.planners.jobs import registry
from divvy.service.home import sole_control_plane
from divvy.service.statements import Statements
from divvy.units import HOUR

#: Written by Divvy with schema 0002: a job that ended, one that failed, one that was preempted and waits, one
#: that runs and one that waits, with the journal of it all.
EARLIER = Path(__file__).parent / "stores" / "schema-0002.sql"


def earlier(path):
    with sqlite3.connect(path) as connection:
        connection.executescript(EARLIER.read_text(encoding="utf-8"))
    connection.close()
    return path


@pytest.fixture
def upgraded(tmp_path):
    database = open_database(f"sqlite:///{earlier(tmp_path / 'divvy.db')}")
    prepare(database)
    yield database
    database.dispose()


def test_a_store_of_the_previous_schema_goes_on_where_it_stood(upgraded):
    loaded = archive.load(upgraded)
    jobs = loaded.state.snapshot.jobs
    phases = {jobs.spec[row].id: jobs.phase[row] for row in jobs.live}
    assert phases == {"free": Phase.QUEUED, "long": Phase.RUNNING, "waits": Phase.QUEUED}
    assert loaded.state.snapshot.tree.paths[1:] == ("lab", "lab.vision", "lab.language")
    rows = {row.spec.id: row for row in Reader(upgraded).jobs(limit=10)}
    assert {name: rows[name].exit_code for name in ("done", "fails")} == {"done": 0, "fails": 1}


def test_its_journal_can_be_decided_again(upgraded):
    state, after = archive.state_before(upgraded, 1)
    steps = archive.steps(upgraded, after=after)
    verdicts = list(replay(state, steps, registry.create, lambda _seq: True))
    assert len(verdicts) == 12
    assert [d["job"] for d in verdicts[8].replayed["decisions"]] == ["free", "long"], "devices are taken back"


def test_its_books_are_what_they_were(upgraded):
    reader = Reader(upgraded)
    assert [(line.job, line.charge) for line in reader.ledger()] == [
        ("fails", 4),
        ("done", 204),
        ("free", 3904),
    ]
    first = reader.ledger()[0].started
    made, _ = Statements(reader).make(first - HOUR, first + HOUR, first + HOUR)
    rows = {row.account: row for row in made.rows}
    assert rows["lab.vision"].delivered.sum() == 4 + 204


def test_a_copy_of_a_store_in_use_is_whole_and_private(tmp_path):
    store, stop = earlier(tmp_path / "divvy.db"), threading.Event()

    def write():
        connection = sqlite3.connect(store, timeout=30)
        connection.execute("PRAGMA journal_mode=WAL")
        number = 0
        while not stop.is_set():
            number += 1
            with connection:
                connection.execute("INSERT INTO counter VALUES (?, ?)", (f"a{number}", number))
                connection.execute("INSERT INTO counter VALUES (?, ?)", (f"b{number}", number))
        connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            copy = tmp_path / f"copy{number}.db"
            assert copy_out(store, copy) == "0002"
            with sqlite3.connect(copy) as connection:
                (pairs,) = connection.execute(
                    "SELECT count(*) FROM counter WHERE name LIKE 'a%' OR name LIKE 'b%'"
                ).fetchone()
            connection.close()
            assert pairs % 2 == 0, "a transaction is in it whole or not at all"
            assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    finally:
        stop.set()
        writer.join()
    assert sorted(path.name for path in tmp_path.glob("*copy*")) == [f"copy{n}.db" for n in range(5)]


def test_putting_back_keeps_what_was_there(tmp_path):
    store, copy = earlier(tmp_path / "divvy.db"), tmp_path / "copy.db"
    copy_out(store, copy)
    with sqlite3.connect(store) as connection:
        connection.execute("DELETE FROM ledger")
    connection.close()
    former = put_back(copy, store)
    counts = []
    for file in (store, former):
        with sqlite3.connect(file) as connection:
            counts.append(connection.execute("SELECT count(*) FROM ledger").fetchone()[0])
        connection.close()
    assert counts == [3, 0]
    assert put_back(copy, store) != former, "the first one is not overwritten"


def _newer(path):
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda path: path.unlink(), "copy-missing"),
        (lambda path: path.write_bytes(b""), "store-damaged"),
        (lambda path: path.write_bytes(b"no database" * 1000), "store-damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:9_000]), "store-damaged"),
        (_newer, "store-newer"),
    ],
)
def test_what_is_no_sound_copy_is_refused_and_the_store_stays(tmp_path, spoil, code):
    store, copy = earlier(tmp_path / "divvy.db"), tmp_path / "copy.db"
    copy_out(store, copy)
    before = store.read_bytes()
    spoil(copy)
    with pytest.raises(DivvyError) as caught:
        put_back(copy, store)
    assert caught.value.code == code
    assert store.read_bytes() == before
    assert not list(tmp_path.glob("*.part"))


def test_a_copy_is_not_written_over_by_chance(tmp_path):
    store, copy = earlier(tmp_path / "divvy.db"), tmp_path / "copy.db"
    copy.write_text("dear")
    with pytest.raises(DivvyError) as caught:
        copy_out(store, copy)
    assert caught.value.code == "copy-exists" and copy.read_text() == "dear"
    assert copy_out(store, copy, replace=True) == "0002" != HEAD
    assert inspect(copy) == "0002"
    with pytest.raises(DivvyError) as caught:
        copy_out(tmp_path / "none.db", tmp_path / "other.db")
    assert caught.value.code == "store-missing"


def test_force_replaces_plain_files_only_and_never_the_store(tmp_path):
    store = earlier(tmp_path / "divvy.db")
    log = tmp_path / "divvy.db-wal"
    log.write_bytes(b"dear")
    (tmp_path / "link").symlink_to("elsewhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    before = store.read_bytes()
    for name, code in {
        "divvy.db": "copy-store",
        "divvy.db-wal": "copy-store",
        "divvy.db-shm": "copy-store",
        "folder/../divvy.db": "copy-store",
        "link": "copy-target",
        "pipe": "copy-target",
        "folder": "copy-target",
        "x" * 300: "copy-name",
        "a\0b": "copy-name",
    }.items():
        with pytest.raises(DivvyError) as caught:
            copy_out(store, tmp_path / name, replace=True)
        assert caught.value.code == code, name
    assert (store.read_bytes(), log.read_bytes()) == (before, b"dear")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "pipe").is_fifo()
    assert not list(tmp_path.glob(".*.part"))


def test_nothing_is_put_back_under_a_control_plane_that_runs(tmp_path, monkeypatch, capsys):
    store, copy = earlier(tmp_path / "divvy.db"), tmp_path / "copy.db"
    copy_out(store, copy)
    before = store.read_bytes()
    monkeypatch.setattr(sys, "argv", ["divvy", "restore", str(copy), "--home", str(tmp_path)])
    with sole_control_plane(tmp_path), pytest.raises(SystemExit) as end:
        main()
    assert end.value.code != 0
    assert "already-running" in capsys.readouterr().err
    assert store.read_bytes() == before
