import json
from pathlib import Path

import pytest

from divvy.control.launch import LaunchSpec, directory_name, run_directory

SOUND = LaunchSpec(("python", "train.py"), "/home/ada", (("PATH", "/bin"),), "ada", 1000, 1000)


def test_a_sound_specification_has_no_faults_and_survives_json():
    assert SOUND.faults() == []
    assert LaunchSpec.from_document(json.loads(json.dumps(SOUND.to_document()))) == SOUND


def test_all_faults_are_found_at_once():
    bad = LaunchSpec(
        (), "home", (("A=B", ""), ("C", "x\0")), "ada", 1, 1, "SIGNOPE", -1, 1e9, memory_bytes=-1
    )
    assert [fault.code for fault in bad.faults()] == [
        "argv-empty",
        "cwd-relative",
        "env-name",
        "env-name",
        "warn-signal",
        "ladder-seconds",
        "ladder-seconds",
        "memory-negative",
    ]


@pytest.mark.parametrize("document", [{}, {**SOUND.to_document(), "shell": True}, {"argv": 3}])
def test_a_damaged_document_is_refused(document):
    with pytest.raises(ValueError, match="damaged launch details"):
        LaunchSpec.from_document(document)


@pytest.mark.parametrize("job", ["..", ".", "", "a/../../b", "x" * 300, ".hidden", "a\nb", "\udc80", "ä b"])
def test_no_id_leaves_its_directory(job):
    path = run_directory(Path("/state"), job, 1)
    assert path.parent.parent == Path("/state/jobs")
    assert not path.parent.name.startswith(".")
    assert len(path.parent.name) < 255


def test_plain_ids_stay_readable_and_no_two_ids_share_a_name():
    assert directory_name("j42.x_y-z") == "j42.x_y-z"
    ids = ["a/b", "a%2Fb", "a b", "a%20b", ".", "%2E", "x" * 300, directory_name("x" * 300)]
    assert len({directory_name(job) for job in ids}) == len(ids)
