"""What is no plain file is never replaced by what a verb writes."""

from __future__ import annotations

import os

import pytest

from divvy.cli.lab_backends import write_backends
from divvy.cli.statement_file import write
from divvy.errors import InputError


def test_a_statement_is_written_through_a_link(tmp_path):
    (tmp_path / "real").write_text("before", encoding="utf-8")
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link", "after", "--html")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text(encoding="utf-8") == "after"
    with pytest.raises(InputError):
        write(tmp_path, "after", "--html")


def test_back_ends_do_not_take_the_place_of_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError) as caught:
        write_backends(tmp_path / "pipe", [], "fitted:resnet50", 50.0)
    assert caught.value.code == "unwritable"
    assert (tmp_path / "pipe").is_fifo()
