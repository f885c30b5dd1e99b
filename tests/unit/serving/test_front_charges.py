"""Slice-seconds are charged once, wait on disk while nobody takes them, and never block a query."""

from __future__ import annotations

import asyncio
import json

import pytest

from divvy.adapters.front.charges import Charges
from divvy.errors import NotFoundError, UnavailableError


class Plane:
    """A control plane that may be away."""

    def __init__(self):
        self.away, self.batches, self.told = False, [], []

    def post(self, batch):
        if self.away:
            raise UnavailableError.one("server-away", "nobody is there")
        if batch["account"] == "gone":
            raise NotFoundError.one("account-unknown", "no account 'gone'")
        self.batches.append(batch)


def charges(plane, path, **more):
    return Charges(path / "spool", "A100-80GB", plane.post, plane.told.append, **more)


def spend(one):
    """Count, and end at once."""

    async def work():
        ended = asyncio.Event()
        task = asyncio.create_task(one.run(ended))
        for account, gpcs, spent in (("a", 1, 5), ("a", 1, 6), ("a", 3, 7), ("b", 7, 8), ("", 1, 9)):
            one.add(account, gpcs, spent)
        await asyncio.sleep(0)
        ended.set()
        await task

    asyncio.run(work())


def total(batches):
    return sum(row["microseconds"] for batch in batches for row in batch["slices"])


def test_what_was_counted_is_posted_by_account_and_size_and_its_file_goes(tmp_path):
    plane = Plane()
    one = charges(plane, tmp_path)
    spend(one)
    found = {batch["account"]: batch["slices"] for batch in plane.batches}
    assert found["a"] == [
        {"model": "A100-80GB.1g", "microseconds": 11},
        {"model": "A100-80GB.3g", "microseconds": 7},
    ]
    assert found["b"] == [{"model": "A100-80GB.7g", "microseconds": 8}]
    assert (set(found), one.posted, one.waiting()) == ({"a", "b"}, 2, [])


def test_while_the_control_plane_is_away_batches_stay_and_keep_their_ids(tmp_path):
    plane = Plane()
    plane.away = True
    spend(charges(plane, tmp_path))
    spend(charges(plane, tmp_path))  # the router was started again
    one = charges(plane, tmp_path)
    kept = [json.loads(file.read_bytes()) for file in one.waiting()]
    assert len({batch["id"] for batch in kept}) == 4
    assert len(plane.told) == 2  # said once per router
    plane.away = False
    one.send()
    assert plane.batches == kept
    assert (total(plane.batches), one.waiting()) == (2 * 26, [])


def test_what_is_never_taken_is_kept_aside_and_holds_up_nobody(tmp_path):
    plane = Plane()
    one = charges(plane, tmp_path)
    one.cut({"gone": {1: 5}, "a": {1: 6}})
    (tmp_path / "spool" / "000000000000001-rx.json").write_text("{")
    one.send()
    assert [batch["account"] for batch in plane.batches] == ["a"]
    assert (one.refused, len(list((tmp_path / "spool").glob("*.refused"))), one.waiting()) == (2, 2, [])
    assert "divvy_serve_charges_refused_total 2" in one.metrics()


@pytest.mark.parametrize("last", [False, True])
def test_files_are_bounded_and_what_is_beyond_stays_counted(tmp_path, last):
    one = charges(Plane(), tmp_path, most_files=1)
    worked = {"a": {1: 5}, "b": {1: 6}}
    one.cut(worked, last=last)
    assert worked == ({} if last else {"b": {1: 6}})


def test_where_nothing_can_be_written_nothing_is_lost(tmp_path):
    (tmp_path / "spool").write_text("a file where the directory belongs")
    plane = Plane()
    one = charges(plane, tmp_path)
    worked = {"a": {1: 5}}
    one.cut(worked)
    assert worked == {"a": {1: 5}}
    assert "wait to be charged" in plane.told[0]
