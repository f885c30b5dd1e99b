"""Questions that take long: each is asked of a process of its own, at low priority, with an end."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import structlog

_log = structlog.get_logger("asked")


async def ask_process(module: str, asked: bytes, life_seconds: float) -> dict[str, Any]:
    """Return what a module answers on its standard output to a question on its standard input.

    An empty answer means that there is none; the log says why.

    Args:
        module: Run as ``python -m``.
        asked: The question.
        life_seconds: When the process is ended.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, stdin=pipe, stdout=pipe, stderr=pipe
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(asked), life_seconds)
    except TimeoutError:
        process.kill()
        await process.wait()
        _log.warning("no answer", module=module, why=f"not done after {life_seconds:.0f} s")
        return {}
    try:
        answer: dict[str, Any] = json.loads(out)
    except ValueError:
        _log.warning("no answer", module=module, why=err.decode(errors="replace")[-500:])
        return {}
    if "problem" in answer:
        _log.warning("no answer", module=module, why=str(answer["problem"])[:500])
    return answer
