"""The devices controller of cgroup v2: a small BPF program that refuses some device nodes.

Version 2 has no file like v1's ``devices.deny``; access is decided by a program of type
``CGROUP_DEVICE`` that is attached to the cgroup (Linux, ``include/uapi/linux/bpf.h``). The program here
is assembled by hand: refuse character devices of one major number with one of some minor numbers, allow
everything else.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_SYSCALL: Final = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361}
_PROG_LOAD: Final = 5
_PROG_ATTACH: Final = 8
_PROG_TYPE_CGROUP_DEVICE: Final = 15
_ATTACH_CGROUP_DEVICE: Final = 6
_ALLOW_MULTI: Final = 2
_CHARACTER: Final = 2
_ATTR_BYTES: Final = 128

_LOAD_WORD: Final = 0x61  # r[dst] = *(u32 *)(r[src] + off)
_AND: Final = 0x57
_JUMP_EQUAL: Final = 0x15
_JUMP_UNEQUAL: Final = 0x55
_MOVE: Final = 0xB7
_EXIT: Final = 0x95


class DeviceFilterError(OSError):
    """The kernel does not take device programs from this process."""


def assemble(major: int, minors: Sequence[int]) -> bytes:
    """Return the program. The context is ``{u32 access_type, u32 major, u32 minor}``, the type in 16 bits."""
    refuse = 6 + len(minors) + 2
    code = [
        _instruction(_LOAD_WORD, 2, 1, 0),
        _instruction(_AND, 2, value=0xFFFF),
        _instruction(_LOAD_WORD, 3, 1, 4),
        _instruction(_LOAD_WORD, 4, 1, 8),
        _instruction(_JUMP_UNEQUAL, 2, offset=len(minors) + 1, value=_CHARACTER),
        _instruction(_JUMP_UNEQUAL, 3, offset=len(minors), value=major),
    ]
    code += [
        _instruction(_JUMP_EQUAL, 4, offset=refuse - (len(code) + place) - 1, value=minor)
        for place, minor in enumerate(minors)
    ]
    code += [
        _instruction(_MOVE, 0, value=1),
        _instruction(_EXIT),
        _instruction(_MOVE, 0, value=0),
        _instruction(_EXIT),
    ]
    if not minors:  # nothing jumps to the refusal, and the kernel takes no unreachable code
        code = code[-4:-2]
    return b"".join(code)


def deny_devices(group: Path, major: int, minors: Sequence[int]) -> None:
    """Attach the program to a v2 cgroup; it stays until the cgroup is removed.

    Raises:
        DeviceFilterError: If the kernel refuses.
    """
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise DeviceFilterError(errno.ENOSYS, f"no device filter on {platform.machine()}")
    program = ctypes.create_string_buffer(assemble(major, minors))
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    load = struct.pack(
        "<IIQQIIQ",
        _PROG_TYPE_CGROUP_DEVICE,
        len(program) // 8,
        ctypes.addressof(program),
        ctypes.addressof(licence),
        0,
        0,
        0,
    )
    loaded = _bpf(number, _PROG_LOAD, load, "load a device program")
    try:
        directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            attach = struct.pack("<IIII", directory, loaded, _ATTACH_CGROUP_DEVICE, _ALLOW_MULTI)
            _bpf(number, _PROG_ATTACH, attach, f"attach a device program to {group}")
        finally:
            os.close(directory)
    finally:
        os.close(loaded)


def _instruction(code: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("<BBhi", code, source << 4 | target, offset, value)


def _bpf(number: int, command: int, attributes: bytes, what: str) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes.ljust(_ATTR_BYTES, b"\0"), _ATTR_BYTES)
    answer = int(
        libc.syscall(ctypes.c_long(number), ctypes.c_int(command), buffer, ctypes.c_uint(_ATTR_BYTES))
    )
    if answer < 0:
        code = ctypes.get_errno()
        raise DeviceFilterError(code, f"cannot {what}: {os.strerror(code)}")
    return answer
