"""XIDs in the kernel's log become faults of the nodes of this machine."""

import os
from types import SimpleNamespace

from divvy.adapters.local.kernel_log import KernelLog
from divvy.fleet.event import NodeFaulted

CLOCK = SimpleNamespace(now=lambda: CLOCK.time, time=1_000)


def write(path, *lines):
    with path.open("ab") as log:
        log.writelines(f"4,7,123,-;{line}\n".encode() for line in lines)


def xid(number):
    return f"NVRM: Xid (PCI:0000:65:00): {number}, pid=17, name=python, text"


def test_only_new_faults_of_nodes_are_reported_and_each_once_a_minute(tmp_path):
    log = tmp_path / "kmsg"
    write(log, xid(79))
    CLOCK.time = 1_000
    watch = KernelLog(("n1", "n2"), CLOCK, log)
    assert watch.poll() == [], "what was there before is known or over"
    write(log, "usb 1-1: new device", xid(63), xid(13), xid(79), xid(79), "NVRM: Xid (PCI:")
    assert watch.poll() == [
        NodeFaulted(1_000, node, code, fatal)
        for code, fatal in (("xid-63", False), ("xid-79", True))
        for node in ("n1", "n2")
    ]
    write(log, xid(79))
    assert watch.poll() == []
    CLOCK.time += 60_000
    write(log, xid(79))
    assert [event.node for event in watch.poll()] == ["n1", "n2"]
    watch.close()
    assert watch.poll() == []


def test_where_the_log_cannot_be_read_or_there_is_no_gpu_nothing_is_reported(tmp_path):
    assert KernelLog(("n1",), CLOCK, tmp_path / "none").poll() == []
    assert KernelLog((), CLOCK, tmp_path).poll() == []


def test_an_empty_log_does_not_block(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    watch = KernelLog(("n1",), CLOCK, path)
    assert watch.poll() == []
    CLOCK.time = 5_000_000
    os.write(writer, f"4,1,1,-;{xid(48)}\n".encode())
    assert [event.code for event in watch.poll()] == ["xid-48"]
    os.close(writer)
    watch.close()
