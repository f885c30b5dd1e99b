import os
import subprocess
from pathlib import Path

import pytest

from divvy.adapters.local import cgroup
from divvy.adapters.local.cgroup import Limits, detect, parse_membership, parse_mounts

HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/ab /sys/fs/cgroup/mem\\040ory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
22 1 8:1 / / rw - ext4 /dev/sda1 rw
"""

V1_FILES = {
    "memory": ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control"],
    "cpu": ["cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"],
    "devices": ["devices.deny"],
    "pids": ["pids.max"],
}
V2_FILES = {"memory": ["memory.max", "memory.swap.max", "memory.events"], "cpu": ["cpu.weight", "cpu.max"]}


def test_mounts_are_read_in_every_spelling():
    mounts = parse_mounts(HYBRID)
    assert [(m.version, m.root, str(m.point), sorted(m.controllers)) for m in mounts] == [
        (1, "/", "/sys/fs/cgroup/cpu,cpuacct", ["cpu"]),
        (1, "/docker/ab", "/sys/fs/cgroup/mem ory", ["memory"]),
        (1, "/", "/sys/fs/cgroup/systemd", []),
        (2, "/", "/sys/fs/cgroup/unified", []),
    ]
    assert parse_mounts("") == parse_mounts("nonsense\n") == []


def test_memberships_are_read_per_controller():
    text = "9:name=systemd:/user\n4:cpu,cpuacct:/a:b\n0::/unified\n"
    assert parse_membership(text) == {
        "name=systemd": "/user",
        "cpu": "/a:b",
        "cpuacct": "/a:b",
        "": "/unified",
    }


class FakeKernel:
    """Directories that behave as cgroups: new ones are born with their files, removal takes these along."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.lines: list[str] = []
        self.membership: list[str] = []
        self.files: dict[Path, object] = {}
        make = Path.mkdir

        def mkdir(path, *args, **options):
            born = not path.exists()
            make(path, *args, **options)
            if born:
                self.populate(path)

        monkeypatch.setattr(Path, "mkdir", mkdir)
        monkeypatch.setattr(Path, "rmdir", self.remove)
        monkeypatch.setattr("divvy.adapters.local.shim.processes.os.rmdir", self.remove)

    @staticmethod
    def remove(path):
        if any(entry.is_dir() for entry in Path(path).iterdir()):
            raise OSError(16, "Device or resource busy", str(path))
        subprocess.run(["rm", "-r", str(path)], check=True)  # os.rmdir itself is replaced

    def v1(self, controller: str, own: str = "/", root: str = "/") -> Path:
        point = self.root / controller
        self.files[point] = V1_FILES[controller]
        (point / own.strip("/")).mkdir(parents=True, exist_ok=True)
        self.lines.append(f"1 2 0:3 {root} {point} rw - cgroup cgroup rw,{controller}")
        self.membership.append(f"5:{controller}:{own}")
        return point

    def v2(self, controllers: str, own: str = "/", enabled: str = "") -> Path:
        point = self.root / "unified"
        self.files[point] = controllers
        point.mkdir(parents=True, exist_ok=True)
        (point / "cgroup.controllers").write_text(controllers)
        (point / "cgroup.subtree_control").write_text(enabled)
        (point / own.strip("/")).mkdir(parents=True, exist_ok=True)
        self.lines.append(f"1 2 0:3 / {point} rw - cgroup2 cgroup2 rw")
        self.membership.append(f"0::{own}")
        return point

    def populate(self, path: Path) -> None:
        point = next((point for point in self.files if point in path.parents), None)
        if point is None:
            return
        files = self.files[point]
        if isinstance(files, str):
            for name in files.split():
                for file in V2_FILES[name]:
                    (path / file).write_text("max")
            (path / "cgroup.controllers").write_text(files)
            (path / "cgroup.subtree_control").write_text("")
        else:
            for file in files:
                (path / file).write_text("")
        (path / "cgroup.procs").write_text("")

    def detect(self, **options):
        proc = self.root / "proc" / "self"
        proc.mkdir(parents=True, exist_ok=True)
        (proc / "mountinfo").write_text("\n".join(self.lines))
        (proc / "cgroup").write_text("\n".join(self.membership))
        return detect("divvy-x", proc=proc.parent, **{"devices": False, **options})


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    return FakeKernel(tmp_path, monkeypatch)


def test_version_1_is_used_where_it_is(kernel):
    memory, cpu, devices = (kernel.v1(name) for name in ("memory", "cpu", "devices"))
    found = kernel.detect(devices=True)
    assert found.base == {
        "memory": memory / "divvy-x",
        "cpu": cpu / "divvy-x",
        "devices": devices / "divvy-x",
        "track": memory / "divvy-x",
    }
    group = found.create("j1.1", Limits(3, 10**9, 1.5, (2, 3)))
    assert set(group.paths) == {str(point / "divvy-x" / "j1.1") for point in (memory, cpu, devices)}
    home = {name: kernel.root / name / "divvy-x" / "j1.1" for name in V1_FILES}
    assert (home["memory"] / "memory.limit_in_bytes").read_text() == "1000000000"
    assert (home["memory"] / "memory.memsw.limit_in_bytes").read_text() == "1000000000"
    assert (home["cpu"] / "cpu.shares").read_text() == "3072"
    assert (home["cpu"] / "cpu.cfs_quota_us").read_text() == "150000"
    assert (home["devices"] / "devices.deny").read_text() == "c 195:3 rwm"  # each written by itself, in turn
    assert group.oom == str(home["memory"] / "memory.oom_control")
    assert group.lacking == ()
    found.discard("j1.1")
    assert not any(Path(path).exists() for path in group.paths)
    found.close()
    assert not list(kernel.root.glob("*/divvy-x"))


def test_hierarchies_that_are_not_used_are_left_as_they_were(kernel):
    pids, _ = kernel.v1("pids"), kernel.v2("")
    found = kernel.detect()
    assert set(found.base) == {"track"}
    assert not (pids / "divvy-x").exists()


def test_a_limit_from_outside_is_inherited_and_a_container_sees_its_own_part(kernel):
    inside = kernel.v1("memory", own="/pod/box", root="/")
    cpu = kernel.v1("cpu", own="/docker/ab", root="/docker/ab")
    found = kernel.detect()
    assert found.base["memory"] == inside / "pod/box/divvy-x"
    assert found.base["cpu"] == cpu / "divvy-x"


def test_version_2_hands_controllers_on(kernel, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    point = kernel.v2("cpu memory", own="/system.slice/divvy.service")
    found = kernel.detect()
    assert found.base == dict.fromkeys(("track", "memory", "cpu"), point / "divvy-x")
    assert (point / "divvy-x" / "cgroup.subtree_control").read_text() == "+cpu"  # the last of two writes
    found.create("j1.1", Limits(200, 10**6, 0.5))
    home = point / "divvy-x" / "j1.1"
    assert (home / "memory.max").read_text() == "1000000"
    assert (home / "memory.swap.max").read_text() == "0"
    assert (home / "cpu.weight").read_text() == "10000"
    assert (home / "cpu.max").read_text() == "50000 100000"


def test_a_cgroup_that_systemd_handed_over_is_used_and_not_the_root(kernel, monkeypatch):
    point = kernel.v2("memory", own="/system.slice/divvy.service")
    monkeypatch.setattr(os, "getxattr", lambda _path, name: b"1" if name == "user.delegate" else b"0")
    assert kernel.detect().base["memory"] == point / "system.slice/divvy.service/divvy-x"


def test_both_together_take_limits_from_1_and_the_kill_switch_from_2(kernel):
    memory, unified = kernel.v1("memory"), kernel.v2("")
    found = kernel.detect()
    assert found.base == {"memory": memory / "divvy-x", "track": unified / "divvy-x"}
    assert found.version == {"memory": 1, "track": 2}
    assert found.reasons["cpu"].startswith("the cpu controller is not available in")


def test_inner_cgroups_with_processes_explain_themselves(kernel, monkeypatch):
    kernel.v2("memory cpu")
    write = Path.write_text

    def busy(path, text, **options):
        if path.name == "cgroup.subtree_control" and text.startswith("+"):
            raise OSError(16, "Device or resource busy", str(path))
        return write(path, text, **options)

    monkeypatch.setattr(Path, "write_text", busy)
    found = kernel.detect()
    assert set(found.base) == {"track"}
    assert "holds processes itself" in found.reasons["memory"]
    assert "Delegate=yes" in found.reasons["memory"]
    group = found.create("j1.1", Limits(1, 10**6))
    assert group.oom == ""
    assert group.lacking == (f"memory is not limited: {found.reasons['memory']}",)
    assert any(line.startswith("memory: not contained: ") for line in found.describe())


def test_what_cannot_be_written_is_a_reason_and_no_error(kernel, monkeypatch):
    kernel.v1("memory")
    kernel.v2("memory")

    def refuse(path, *_args, **_options):
        raise PermissionError(13, "Permission denied", str(path))

    proc = kernel.root / "proc" / "self"
    proc.mkdir(parents=True)
    monkeypatch.setattr(Path, "mkdir", refuse)
    (proc / "mountinfo").write_text("\n".join(kernel.lines))
    (proc / "cgroup").write_text("\n".join(kernel.membership))
    found = detect("divvy-x", devices=False, proc=proc.parent)
    assert found.base == {}
    assert found.reasons["memory"].endswith("Permission denied")
    assert found.reasons["track"].endswith("Permission denied")
    assert found.create("j1.1", Limits(1)) == cgroup.Group()


def test_a_machine_without_cgroups_says_so(tmp_path):
    found = detect("divvy-x", devices=True, proc=tmp_path / "nothing")
    assert found.base == {}
    assert all("No such file" in found.reasons[what] for what in ("track", "memory", "cpu", "devices"))
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text("")
    (tmp_path / "self" / "cgroup").write_text("")
    found = detect("divvy-x", devices=False, proc=tmp_path)
    assert found.reasons["memory"] == "no mounted cgroup hierarchy has the memory controller"
    assert found.reasons["devices"] == "no GPUs here"
