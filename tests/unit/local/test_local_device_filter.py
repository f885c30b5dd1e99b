import errno
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from divvy.adapters.local.cgroup import Limits, detect, parse_mounts
from divvy.adapters.local.device_filter import assemble, deny_devices


def run_program(code: bytes, kind: int, major: int, minor: int) -> int:
    """Interpret a program of the six instructions that are used."""
    words = [struct.unpack("<BBhi", code[place : place + 8]) for place in range(0, len(code), 8)]
    context = {0: (1 << 16) | kind, 4: major, 8: minor}
    registers: dict[int, int] = {}
    place = 0
    while True:
        op, pair, offset, value = words[place]
        target, source = pair & 15, pair >> 4
        place += 1
        if op == 0x61:
            assert source == 1
            registers[target] = context[offset]
        elif op == 0x57:
            registers[target] &= value
        elif op == 0xB7:
            registers[target] = value
        elif op == 0x95:
            return registers[0]
        else:
            equal = registers[target] == value
            assert op in (0x15, 0x55)
            place += offset if equal == (op == 0x15) else 0


@pytest.mark.parametrize("minors", [(), (3,), (0, 2, 7)])
def test_exactly_the_named_devices_are_refused(minors):
    code = assemble(195, minors)
    for kind in (1, 2):
        for major in (1, 195):
            for minor in range(9):
                refused = kind == 2 and major == 195 and minor in minors
                assert run_program(code, kind, major, minor) == (0 if refused else 1)


def in_group(groups, path) -> int:
    """Return the error number with which a process inside cgroups opens a device file; 0 if it opens."""
    script = (
        "import os, sys\n"
        "for group in sys.argv[2:]: open(group + '/cgroup.procs', 'w').write('0')\n"
        "try: os.open(sys.argv[1], os.O_RDONLY)\n"
        "except OSError as error: sys.exit(error.errno)\n"
    )
    return subprocess.run([sys.executable, "-I", "-S", "-c", script, path, *groups], check=False).returncode


@pytest.mark.e2e
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can attach device programs")
def test_the_kernel_takes_the_program_and_obeys_it():
    points = [m.point for m in parse_mounts(Path("/proc/self/mountinfo").read_text()) if m.version == 2]
    group = points[0] / f"divvy-test-{os.getpid()}" if points else None
    try:
        if group is None:
            pytest.skip("no cgroup v2 is mounted")
        group.mkdir()
        deny_devices(group, 1, (5, 7))
    except OSError as error:
        pytest.skip(str(error))
    else:
        assert in_group([str(group)], "/dev/zero") == errno.EPERM  # 1:5
        assert in_group([str(group)], "/dev/full") == errno.EPERM  # 1:7
        assert in_group([str(group)], "/dev/null") == 0  # 1:3
        assert in_group([], "/dev/zero") == 0
    finally:
        if group is not None and group.exists():
            group.rmdir()


@pytest.mark.e2e
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device files")
def test_gpus_of_others_cannot_be_opened(tmp_path):
    containment = detect(f"divvy-test-{os.getpid()}", devices=True)
    try:
        if "devices" not in containment.base:
            pytest.skip(containment.reasons["devices"])
        for minor in (0, 1):
            os.mknod(tmp_path / f"nvidia{minor}", 0o20600, os.makedev(195, minor))
        group = containment.create("j1.1", Limits(1, denied_minors=(1,)))
        # There is no GPU behind either file: what is permitted fails later than what is forbidden.
        assert in_group(group.paths, str(tmp_path / "nvidia0")) == errno.ENXIO
        assert in_group(group.paths, str(tmp_path / "nvidia1")) == errno.EPERM
        containment.discard("j1.1")
    finally:
        containment.close()
