"""Following a log: what is said meanwhile, and what happens when the server goes away."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from divvy.cli.client import Client, Target
from divvy.cli.logs import Stream, _Reading
from divvy.cli.told import Told
from divvy.errors import NotFoundError, UnavailableError

pytestmark = pytest.mark.e2e


class Server(ThreadingHTTPServer):
    """Plays a job that waits, runs, is cut off in the middle, and runs a second time."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.looks = 0
        self.asked = []
        self.states = ["queued"]
        self.logs = {1: b"one two ", 2: b"three"}
        self.broken = 1


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args):
        """Keep quiet."""

    def do_GET(self):
        path, _, query = self.path.partition("?")
        asked = dict(part.split("=") for part in query.split("&") if part)
        server = self.server
        if path == "/v1/jobs/no":
            self.answer(404, {"status": 404, "title": "no job", "code": "job-unknown"})
        elif path.endswith("/logs"):
            self.log(server, int(asked["attempt"]), int(asked["offset"]))
        else:
            server.looks += 1
            state = server.states[min(server.looks, len(server.states)) - 1]
            self.answer(200, {"id": "j1", "state": state, "attempt": 2 if state == "finished" else 0})

    def log(self, server, attempt, offset):
        server.asked.append((attempt, offset))
        data = server.logs[attempt][offset:]
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if server.broken and attempt == 1:
            server.broken -= 1
            self.wfile.write(b"4\r\n" + data[:4] + b"\r\n")
            self.close_connection = True
            return
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n0\r\n\r\n")

    def answer(self, status, document):
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def server():
    made = Server()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def reading(server, job="j1"):
    target = Target(f"http://127.0.0.1:{server.server_port}", None)
    return _Reading(target, job, 0, 0, as_json=False), Told(Client(target), job, quiet=False)


def test_a_broken_connection_is_taken_up_where_it_broke_and_the_next_run_follows(server, capfdbinary):
    server.states = ["queued", "finished"]
    read, told = reading(server)
    told.look()
    read.follow([Stream.STDOUT], told)
    found = capfdbinary.readouterr()
    assert found.out == b"one two three"
    assert server.asked == [(1, 0), (1, 4), (2, 0)]
    assert b"j1 waits (queued); divvy explain j1 says why" in found.err
    assert b"the control plane does not answer; waiting for it" in found.err


def test_an_unknown_job_is_refused_at_once(server):
    _, told = reading(server, "no")
    with pytest.raises(NotFoundError):
        told.look()


def test_a_server_that_stays_away_is_given_up(server, monkeypatch):
    monkeypatch.setattr("divvy.cli.told.PATIENCE_SECONDS", -1.0)
    _, told = reading(server)
    with pytest.raises(UnavailableError):
        told.away(UnavailableError.one("server-unreachable", "gone"))
