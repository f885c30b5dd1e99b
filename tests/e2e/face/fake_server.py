"""Serves a `FakeFleet` over TCP or a Unix socket, with the page, as the real API does."""

from __future__ import annotations

import json
import socket
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from fake_fleet import FakeFleet, RefusedError
from fake_insight import FakeInsight

from divvy.service.web import answer, load


class Handler(BaseHTTPRequestHandler):
    """Routes of /v1 and the page."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_args: Any) -> None:
        """Say nothing: tests read `FakeFleet.requests`."""

    def do_GET(self) -> None:
        if not self.path.startswith("/v1/"):
            self._page()
            return
        self._route("GET")

    def do_POST(self) -> None:
        self._route("POST")

    def do_PUT(self) -> None:
        self._route("PUT")

    def do_PATCH(self) -> None:
        self._route("PATCH")

    def do_DELETE(self) -> None:
        self._route("DELETE")

    def _page(self) -> None:
        name = urlsplit(self.path).path.removeprefix("/").removeprefix("web/") or "index.html"
        asset = self.server.assets.get(name)
        if asset is None:
            self._send(404, {}, b"no such file")
            return
        known = self.headers.get("If-None-Match", "")
        self._send(*answer(asset, known=known, packed="gzip" in self.headers.get("Accept-Encoding", "")))

    def _route(self, method: str) -> None:
        parts = urlsplit(self.path)
        steps = [unquote(step) for step in parts.path.split("/")[2:]]
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        fleet = self.server.fleet
        if not steps[0].startswith("stream"):
            fleet.requests.append((method, self.path, body))
        wanted = self.server.token
        if wanted and self.headers.get("Authorization") != f"Bearer {wanted}":
            self._json(
                401, RefusedError(401, "unauthenticated", "a token is needed", fix="set DIVVY_TOKEN").document
            )
            return
        try:
            with fleet.lock:
                found = self._answer(method, steps, query, body, fleet)
        except RefusedError as refusal:
            self._json(refusal.document["status"], refusal.document)
            return
        if found is None:
            self._json(404, RefusedError(404, "route-unknown", "no such route").document)
        elif callable(found):
            found()
        else:
            self._json({"POST": 201, "DELETE": 202}.get(method, 200), found)

    def _answer(  # noqa: PLR0911 - one per route
        self, method: str, steps: list[str], query: dict[str, str], body: Any, fleet: FakeFleet
    ) -> Any:
        limit = int(query.get("limit", 1_000))
        account, author = query.get("account", ""), query.get("author", "")
        match method, *steps:
            case "GET", "status":
                return fleet.status()
            case "GET", "queue":
                return fleet.queue(account, author, limit)
            case "GET", "jobs":
                return fleet.list_jobs(query.get("state", ""), account, author, limit)
            case "POST", "jobs":
                return fleet.submit(body)
            case "GET", "jobs", job:
                return fleet.job(job)
            case "DELETE", "jobs", job:
                return fleet.cancel(job)
            case "GET", "jobs", job, "explain":
                return fleet.explain(job)
            case "GET", "jobs", job, "logs":
                fleet.job(job)
                return lambda: self._logs(job, query)
            case "GET", "budget":
                return fleet.budget()
            case "PUT", "budget":
                return fleet.put_budget(body)
            case "GET", "budget", "history":
                return fleet.history()
            case "PATCH", "budget", "accounts", path:
                return fleet.set_share(path, body)
            case "GET", "statement":
                start, end = float(query.get("from", 0)), float(query.get("to", 0))
                return fleet.statement(account, start, end, hours=query.get("hours") == "true")
            case ("POST" | "DELETE") as verb, "nodes", name, "drain":
                return fleet.drain(name, body.get("reason", ""), undo=verb == "DELETE")
            case "POST", "nodes", name, "fault":
                return fleet.drain(name, body["code"], undo=False)
            case "POST", "tokens":
                return fleet.create_token(body)
            case "GET", "tokens":
                return fleet.list_tokens()
            case "DELETE", "tokens", name:
                if fleet.tokens.pop(name, None) is None:
                    raise RefusedError(
                        404, "token-unknown", f"no token {name!r}", allowed=", ".join(fleet.tokens)
                    )
                return {"schema": "divvy.token.revoked/1", "id": name}
            case "GET", "stream":
                return self._stream
            case "GET", "shown", name, "picture":
                picture = self.server.insight.picture(name)
                return lambda: self._send(200, {"Content-Type": "image/svg+xml"}, picture)
            case _:
                return self.server.insight.answer(method, steps, body, list(fleet.shares))

    def _logs(self, job: str, query: dict[str, str]) -> None:
        self._start_chunks("text/plain; charset=utf-8")
        parts = 3 if query.get("follow") == "true" else 1
        text = b"".join(self.server.fleet.log(query["stream"], part) for part in range(3))[
            int(query["offset"]) :
        ]
        size = max(len(text) // parts, 1)
        for at in range(0, len(text), size):
            self._chunk(text[at : at + size])
            time.sleep(0.02)
        if parts > 1:  # what is followed comes to its end
            with self.server.fleet.lock:
                self.server.fleet.jobs[job]["state"] = "finished"
        self._chunk(b"")

    def _stream(self) -> None:
        self._start_chunks("text/event-stream")
        fleet = self.server.fleet
        try:
            while not self.server.stopping:
                with fleet.changed:
                    data = json.dumps({"version": fleet.version, "at": time.time()})
                    self._chunk(f"event: published\ndata: {data}\n\n".encode())
                    fleet.changed.wait(timeout=0.5)
            self._chunk(b"")
        except OSError:
            return  # the browser went away

    def _start_chunks(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, piece: bytes) -> None:
        self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.flush()

    def _json(self, status: int, document: dict[str, Any]) -> None:
        kind = "application/problem+json" if status >= 400 else "application/json"
        self._send(status, {"Content-Type": kind}, json.dumps(document).encode())

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """The fake API on a free port of the loopback, or on a Unix socket."""

    daemon_threads = True

    def __init__(self, fleet: FakeFleet, path: Path | None = None, token: str = "") -> None:
        self.fleet = fleet
        self.token = token
        self.assets = load()
        self.insight = FakeInsight()
        self.insight.fill()
        self.stopping = False
        self.path = path
        if path is not None:
            self.address_family = socket.AF_UNIX
        super().__init__(str(path) if path else ("127.0.0.1", 0), Handler)  # type: ignore[arg-type]

    def server_bind(self) -> None:
        if self.path is None:
            super().server_bind()
        else:
            socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that leaves in the middle of a request; anything else is a fault."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def get_request(self) -> tuple[socket.socket, Any]:
        request, address = super().get_request()
        return request, address or ("unix", 0)

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping = True
        self.fleet.touch()
        self.shutdown()
        self.server_close()
        self.insight.close()


if __name__ == "__main__":
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    socket_path = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    with Server(FakeFleet(nodes), socket_path) as running:
        sys.stdout.write(f"{running.path or running.url}\n")
        sys.stdout.flush()
        while True:
            time.sleep(2)
            running.fleet.touch()
