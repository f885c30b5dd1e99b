"""Compile the planner and what a replay runs with it, beside the source: `make compiled`.

The package is copied to a directory of its own, the modules below are compiled there by mypyc, and their
sources are removed from the copy: what does not load fails, and nothing falls back in silence. The source
tree stays plain, so that no compiled module hides an edit.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

MODULES = {
    "planners/jobs": "budget queue index reach reclaim victims claims slots placement balance holdings "
    "contest gate limits protection resting standings window zones feasible",
    "control": "loop state charging capacity agenda refunds upkeep payers health_events",
    "sim": "engine recorder",
    "fleet": "usage snapshot decision job node ledger price reason health account",
}
BUILD = """
import sys
try:
    from setuptools import setup
except ImportError:
    from distutils.core import setup
from mypyc.build import mypycify
setup(name="divvy_compiled", packages=[], ext_modules=mypycify(sys.argv[1:], opt_level="2"),
      script_args=["build_ext", "--inplace"])
"""


def main() -> int:
    """Build into the directory named first; return the exit code."""
    root = Path(__file__).resolve().parents[1]
    target = Path(sys.argv[1]).resolve()
    if shutil.which(os.environ.get("CC", "cc")) is None:
        print("no C compiler: install one (apt-get install gcc) or set CC", file=sys.stderr)
        return 1
    fresh = target.with_name(target.name + ".new")
    for place in (fresh, target):
        shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(root / "src", fresh / "lib", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    sources = [f"divvy/{room}/{name}.py" for room, names in MODULES.items() for name in names.split()]
    print(f"compiling {len(sources)} modules: about a minute and a half", flush=True)
    options = ["--config-file=", "--python-version=3.11"]
    with (fresh / "build.log").open("w") as log:
        done = subprocess.run(
            [sys.executable, "-c", BUILD, *options, *sources],
            cwd=fresh / "lib",
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        print(f"the build failed; see {fresh / 'build.log'}", file=sys.stderr)
        return done.returncode
    for source in sources:
        (fresh / "lib" / source).unlink()
    shutil.rmtree(fresh / "lib" / "build", ignore_errors=True)
    fresh.rename(target)
    start = target / "divvy"
    path = f"{target / 'lib'}${{PYTHONPATH:+:$PYTHONPATH}}"
    start.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{sys.executable}" -m divvy "$@"\n')
    start.chmod(start.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    print(f"built: {start} --version")
    return 0


if __name__ == "__main__":
    sys.exit(main())
