"""The what-if process: answers one question from the store and ends; it can slow nothing and lose nothing."""

from __future__ import annotations

import json
import os
import sys

from divvy.bootstrap import LiveSettings
from divvy.bootstrap.whatif import Question, answer
from divvy.errors import EXIT_OK, DivvyError


def main() -> int:
    """Answer one question (a line of JSON) with one; return the exit code."""
    os.nice(15)
    asked = json.loads(sys.stdin.read())
    try:
        found = answer(LiveSettings(**asked["settings"]), Question(**asked["question"]), asked["now"])
    except DivvyError as error:
        sys.stdout.write(json.dumps({"problem": error.to_problem()}))
        return error.exit_code
    sys.stdout.write(json.dumps({"found": found}))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
