"""Keeps what compiled libraries print out of an answer: a solver's stray line would make JSON unreadable."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_OUT: Final = 1
_ERR: Final = 2


@contextmanager
def libraries_quiet() -> Iterator[None]:
    """Let what compiled code prints on standard output go to standard error meanwhile.

    HiGHS 1.12 and others print a line of their own, whatever their options say (jump-dev/HiGHS.jl #312), past
    `sys.stdout` and into C's buffer. Where there is no standard output to guard, nothing is done.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(_OUT)
        os.dup2(_ERR, _OUT)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)  # C's buffer, or it would be written after all, at the end
        os.dup2(kept, _OUT)
        os.close(kept)
