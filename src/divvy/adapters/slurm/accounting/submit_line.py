"""GPUs in the command that submitted a job, for a Slurm whose accounting does not keep them.

``AccountingStorageTRES`` without ``gres/gpu`` leaves no GPU in TRES; what is left is the line that somebody
typed, as Slurm joined it (quotes are lost). It is a request, not an allocation, and says so by a warning.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from divvy.adapters.slurm.tres import NO_GPUS, Gpus, Request, of_request

#: Options without a value; every other one takes the next word where it has no ``=``.
_FLAG_NAMES: Final = """
    contiguous exclusive get-user-env help hold ignore-pbs kill-on-bad-exit no-kill no-requeue no-shell
    overcommit oversubscribe parsable pty quiet reboot requeue share spread-job test-only unbuffered use-
    min-nodes verbose version wait wait-all-nodes interactive immediate label multi-prog preserve-env
"""
_FLAGS: Final = frozenset(_FLAG_NAMES.split())
_SHORT_FLAGS: Final = frozenset("HIOQsvWkhVlu")
_GPU_OPTIONS: Final = {
    "gpus": "per_job",
    "G": "per_job",
    "gres": "per_node",
    "gpus-per-node": "per_node",
    "gpus-per-task": "per_task",
    "gpus-per-socket": "per_socket",
    "tres-per-job": "per_job",
    "tres-per-node": "per_node",
    "tres-per-task": "per_task",
}
_BARE: Final = frozenset({"gpus", "G", "gpus-per-node", "gpus-per-task", "gpus-per-socket"})
_SESSION: Final = re.compile(r"(?:^|/|\s)(?:salloc\b|srun\b.*\s--pty\b)")


@lru_cache(maxsize=16_384)
def gpus_of(line: str) -> Gpus:
    """Return the GPUs that a submission asked for; none where it names none or cannot be read."""
    options = dict(_options(line.split()))
    texts: dict[str, Any] = {}
    for name, field in _GPU_OPTIONS.items():
        value = options.get(name)
        if value:
            texts[field] = ",".join(f"gpu:{part}" for part in value.split(",")) if name in _BARE else value
    nodes = _number(options.get("nodes") or options.get("N"))
    tasks = _number(options.get("ntasks") or options.get("n"), nodes)
    if "ntasks-per-node" in options:
        tasks = nodes * _number(options["ntasks-per-node"])
    try:
        return of_request(Request(nodes=nodes, tasks=tasks)._replace(**texts))
    except ValueError:
        return NO_GPUS


def is_session(line: str) -> bool:
    """Return whether a submission was of a person at a terminal (salloc, srun --pty)."""
    return ("salloc" in line or "--pty" in line) and _SESSION.search(line) is not None


def _options(words: list[str]) -> list[tuple[str, str]]:
    """Return the options before the script; with --wrap there is no script, and all of the line counts."""
    wrapped = any(word == "--wrap" or word.startswith("--wrap=") for word in words)
    found: list[tuple[str, str]] = []
    place = 1
    while place < len(words):
        word = words[place]
        place += 1
        following = words[place] if place < len(words) and not words[place].startswith("-") else ""
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            takes = not equals and name not in _FLAGS
        elif word.startswith("-") and len(word) > 1:
            name, value = word[1], word[2:]
            takes = not value and name not in _SHORT_FLAGS
        elif wrapped:
            continue
        else:
            break
        if takes:
            value = following
            place += bool(following)
        found.append((name, value))
    return found


def _number(text: str | None, default: int = 1) -> int:
    """Return the first number of an option such as ``2-4``."""
    found = re.match(r"\d+", text or "")
    return int(found.group()) if found else default
