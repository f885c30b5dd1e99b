import json
import os
import stat
from pathlib import Path

import pytest

from divvy.adapters.local.shim import record
from divvy.adapters.local.shim.child import Fault
from divvy.adapters.local.shim.main import exit_code, oom_kills
from divvy.adapters.local.shim.processes import catches, descendants, members, read_stat, remove_groups


def test_a_record_is_whole_or_absent(tmp_path):
    path = str(tmp_path / "a.json")
    assert record.read(path) is None
    record.write(path, {"n": 1, "name": "\udc80ä"})
    record.write(path, {"n": 2, "name": "\udc80ä"}, durable=False)
    assert record.read(path) == {"n": 2, "name": "\udc80ä"}
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_what_is_not_a_record_is_refused(tmp_path):
    (tmp_path / "list").write_text("[]")
    with pytest.raises(ValueError, match="is not a record"):
        record.read(str(tmp_path / "list"))


def test_of_any_number_of_claims_one_succeeds(tmp_path):
    path = str(tmp_path / "claim")
    children = []
    for number in range(8):
        pid = os.fork()
        if pid == 0:
            os._exit(0 if record.claim(path, {"by": number}) else 1)
        children.append((pid, number))
    won = [number for pid, number in children if os.waitpid(pid, 0)[1] == 0]
    assert won == [json.loads((tmp_path / "claim").read_text())["by"]]
    assert [entry.name for entry in tmp_path.iterdir()] == ["claim"]


def test_a_reserved_record_takes_no_new_room(tmp_path):
    path = str(tmp_path / "end")
    record.reserve(path)
    room = Path(f"{path}.tmp").stat()
    assert room.st_size == record.RESERVED_BYTES
    record.write_reserved(path, {"message": "\U0001f600" * 9999, "code": 0})
    written = record.read(path)
    assert written is not None
    assert 0 < len(written["message"]) < record.RESERVED_BYTES
    assert Path(path).stat().st_size <= record.RESERVED_BYTES
    assert Path(path).stat().st_ino == room.st_ino


def test_a_fault_passes_through_the_pipe():
    fault = Fault("job", 127, "cannot run \udc80x: a\0b")
    back = Fault.decode(fault.encode())
    assert (back.of, back.exit_code) == ("job", 127)
    assert back.message.endswith("a\0b")
    assert len(Fault("job", 1, "x" * 99_999).encode()) <= 4096


@pytest.mark.parametrize(("status", "code"), [(None, None), (0, 0), (3 << 8, 3), (9, 137), (11 | 0x80, 139)])
def test_wait_statuses_are_written_as_people_write_them(status, code):
    assert exit_code(status) == code


def test_kills_for_want_of_memory_are_counted_in_both_versions(tmp_path):
    (tmp_path / "v1").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    (tmp_path / "v2").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 3\noom_group_kill 0\n")
    assert oom_kills(str(tmp_path / "v1")) == 2
    assert oom_kills(str(tmp_path / "v2")) == 3
    assert oom_kills(str(tmp_path / "gone")) == oom_kills("") == 0


def proc(tmp_path, pid, name, parent, state="S", ticks=77, masks=""):
    (tmp_path / str(pid)).mkdir()
    rest = [state, str(parent)] + ["0"] * 17 + [str(ticks), "0"]
    (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(rest)}\n")
    (tmp_path / str(pid) / "status").write_text(masks)


def test_descendants_are_found_whatever_their_names(tmp_path):
    proc(tmp_path, 10, "shim", 1)
    proc(tmp_path, 11, "a) S 99 (b", 10)
    proc(tmp_path, 12, "x y", 11)
    proc(tmp_path, 13, "zombie", 10, state="Z")
    proc(tmp_path, 14, "of the zombie", 13)
    proc(tmp_path, 20, "other", 1)
    (tmp_path / "self").mkdir()
    assert sorted(descendants(10, str(tmp_path))) == [11, 12, 14]
    stat_of = read_stat(11, str(tmp_path))
    assert stat_of is not None
    assert (stat_of.parent, stat_of.ticks) == (10, 77)
    assert read_stat(99, str(tmp_path)) is None


def test_whether_a_signal_would_be_heard_is_read_from_the_masks(tmp_path):
    caught = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000200\nSigCgt:\t0000000000000800\n"
    proc(tmp_path, 1, "a", 0, masks=caught)
    assert catches(1, 12, str(tmp_path))  # SIGUSR2 has a handler
    assert not catches(1, 10, str(tmp_path))  # SIGUSR1 is ignored
    assert not catches(1, 15, str(tmp_path))
    proc(
        tmp_path,
        2,
        "waits",
        0,
        masks=caught.replace("SigBlk:\t0000", "SigBlk:\t0000").replace(
            "Blk:\t0000000000000000", "Blk:\t0000000000000200"
        ),
    )
    assert catches(2, 10, str(tmp_path))
    assert not catches(3, 10, str(tmp_path))


def test_groups_that_are_gone_have_no_members_and_need_no_removal(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "cgroup.procs").write_text("3\n4\n")
    assert members([str(tmp_path / "a"), str(tmp_path / "gone")]) == {3, 4}
    assert remove_groups([str(tmp_path / "gone")])
    assert not remove_groups([str(tmp_path / "a")])
