"""Size budget: a module has at most 400 lines, a function at most 50; the medians stay small.

Exceptions are listed here with their reason, so that each is a decision and not an accident.
"""

from __future__ import annotations

import ast
import statistics
import sys
from pathlib import Path

MODULE_LIMIT = 400
FUNCTION_LIMIT = 50
MEDIAN_LIMIT = 200

#: Path below src/divvy (or path::function) to the reason for being longer.
EXCEPTIONS: dict[str, str] = {
    "sim/queries/loops.py::late": "one event loop; numba takes no records, so a third of it is arguments",
    "adapters/store/migrations/versions/r0001_first_schema.py::upgrade": "a list of statements",
}


def main() -> int:
    """Print what is over budget; return 1 if anything is."""
    root = Path(__file__).resolve().parent.parent / "src" / "divvy"
    faults: list[str] = []
    sizes: list[int] = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = str(path.relative_to(root))
        lines = text.count("\n")
        if lines > 10:
            sizes.append(lines)
        if lines > MODULE_LIMIT and name not in EXCEPTIONS:
            faults.append(f"{name}: {lines} lines > {MODULE_LIMIT}")
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LIMIT and f"{name}::{node.name}" not in EXCEPTIONS:
                faults.append(f"{name}::{node.name}: {length} lines > {FUNCTION_LIMIT}")
    median = statistics.median(sizes)
    if median > MEDIAN_LIMIT:
        faults.append(f"median module: {median} lines > {MEDIAN_LIMIT}")
    for fault in faults:
        print(fault)
    print(f"{len(sizes)} modules, median {median:.0f} lines, {sum(sizes)} in all; {len(faults)} over budget")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
