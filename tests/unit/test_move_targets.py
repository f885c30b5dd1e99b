"""A file that is received takes the place of plain files only."""

from __future__ import annotations

import os

import pytest

from divvy.errors import InputError
from divvy.transfer.places import target_file


def test_directories_and_pipes_are_left_alone(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(InputError) as caught:
            target_file("here", tmp_path / name, 8, "copy")
        assert caught.value.code == "file-unwritable"
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "folder").is_dir()
    assert not list(tmp_path.glob(".*.part"))


def test_a_plain_file_is_replaced_when_the_new_one_is_whole(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"before")
    region = target_file("here", path, 5, "copy")
    region.view[:] = b"after"
    assert path.read_bytes() == b"before"
    region.keep()
    assert path.read_bytes() == b"after"
    region.close()
