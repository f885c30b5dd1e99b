"""The supervisor over children that are a few lines of Python."""

import os
import signal
import sys
import threading
import time

import pytest

from divvy.bootstrap import LiveSettings
from divvy.errors import ConflictError, DivvyError
from divvy.service.child import Orders
from divvy.service.supervisor import Child, Supervisor

pytestmark = pytest.mark.e2e

READY = "import sys, time; sys.stdin.readline(); print('{\"ready\": true}', flush=True); "
REFUSED = (
    "import sys; sys.stdin.readline(); "
    'print(\'{"problem": {"status": 409, "title": "no", "code": "%s", "detail": "no"}}\', flush=True); '
    "sys.exit(6)"
)


@pytest.fixture
def supervise(tmp_path):
    """Run a supervisor in this thread; `then` runs in another one when all children are ready."""

    def run(*bodies, then=None):
        children = [
            Child(f"c{n}", [sys.executable, "-c", body], Orders(LiveSettings("h", "d")))
            for n, body in enumerate(bodies)
        ]
        said = []

        def ready():
            threading.Thread(target=lambda: (then(children), os.kill(os.getpid(), signal.SIGTERM))).start()

        Supervisor(children, tmp_path, said.append).run(ready)
        return children, said

    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP)
    }
    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_child_that_dies_is_started_again_and_all_are_stopped(supervise):
    def kill_one(children):
        first = children[0].process.pid
        os.kill(first, signal.SIGKILL)
        limit = time.monotonic() + 20
        while (children[0].process is None or children[0].process.pid == first) and time.monotonic() < limit:
            time.sleep(0.01)

    children, said = supervise(READY + "time.sleep(60)", READY + "time.sleep(60)", then=kill_one)
    assert [child.starts for child in children] == [2, 1]
    assert [child.process for child in children] == [None, None]
    assert said == ["the c0 process ended (signal SIGKILL); starting it again"]


def test_a_child_that_is_refused_at_its_first_start_ends_everything(supervise):
    with pytest.raises(ConflictError) as caught:
        supervise(READY + "time.sleep(60)", REFUSED % "port-in-use")
    assert caught.value.code == "port-in-use"


def test_a_child_that_never_starts_is_given_up_with_the_place_of_its_last_words(supervise, tmp_path):
    with pytest.raises(DivvyError) as caught:
        supervise("import sys; sys.exit('so be it')")
    assert caught.value.code == "child-failed"
    assert caught.value.faults[0].path == str(tmp_path / "c0.err")
    assert "so be it" in (tmp_path / "c0.err").read_text()
