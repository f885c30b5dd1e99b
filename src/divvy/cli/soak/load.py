"""Who uses the control plane meanwhile: people who submit real jobs, and somebody who sends nonsense."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any, Final
from urllib.request import urlopen

from divvy.cli.soak.plane import Plane
from divvy.errors import DivvyError

#: What a job does: it notes who it is, works, and ends as it was told.
_MARK: Final = 'echo "$DIVVY_JOB_ID $DIVVY_ATTEMPT" >> "$0"; sleep "$1"; exit "$2"'
_GAP_SECONDS: Final = 1.2
_RETRY_SECONDS: Final = 0.5
_CANCELLED: Final = 0.05


class People(threading.Thread):
    """Submit jobs, again and again the same until it is answered, and cancel a few.

    Args:
        plane: To whom.
        seed: Draws them.
    """

    def __init__(self, plane: Plane, seed: int) -> None:
        super().__init__(daemon=True)
        self._plane, self._draw = plane, random.Random(seed)  # noqa: S311 - repeatable load
        self._over = threading.Event()
        self.codes: dict[str, int] = {}
        """Exit code of every job whose submission was answered."""
        self.refused: list[str] = []
        self.unsure: set[str] = set()
        """Submitted last and never answered: nobody knows whether they were taken."""
        self.retries = 0

    def finish(self) -> None:
        """Submit no more."""
        self._over.set()
        self.join()

    def run(self) -> None:
        """Submit until told to finish."""
        while not self._over.is_set():
            self._submit()
            self._over.wait(self._draw.expovariate(1 / _GAP_SECONDS))

    def _submit(self) -> None:
        draw, number = self._draw, len(self.codes) + len(self.refused)
        code = draw.choice((0, 0, 0, 3))
        marks = str(self._plane.base / "marks")
        body: dict[str, Any] = {
            "id": f"s{number:06d}",
            "account": draw.choice(("lab.vision", "lab.language")),
            "gpus": draw.choice((1, 1, 1, 2, 4)),
            "argv": ["/bin/sh", "-c", _MARK, marks, f"{draw.uniform(0.05, 3):.2f}", str(code)],
            "cwd": "/",
            "min_runtime": draw.choice(("0", "1s", "2s")),
            "resumable": draw.random() < 0.7,
            "grace": "1s",
            "warn": "0s",
        }
        while True:
            try:
                self._plane.client().post("jobs", body=body)
            except DivvyError as error:
                if error.status < 500:
                    self.refused.append(f"{body['id']}: {error}")
                    return
                self.retries += 1
                if self._over.wait(_RETRY_SECONDS):
                    self.unsure.add(body["id"])
                    return
            else:
                break
        self.codes[body["id"]] = code
        if draw.random() < _CANCELLED:
            with suppress(DivvyError):
                self._plane.client().delete("jobs", draw.choice(list(self.codes)))


class Nonsense(threading.Thread):
    """Send requests that nobody sane sends to every path of the API's own description.

    Without a token, so that what is by chance well formed is refused too: nothing of it may be carried out.

    Args:
        plane: To whom.
        seed: Draws them.
        per_minute: How many.
    """

    def __init__(self, plane: Plane, seed: int, per_minute: float) -> None:
        super().__init__(daemon=True)
        self._plane, self._draw = plane, random.Random(seed)  # noqa: S311 - repeatable load
        self._pause = 60 / per_minute
        self._over = threading.Event()
        self._paths: list[tuple[str, str]] = []
        self.answers: Counter[int] = Counter()
        self.faults: list[str] = []
        self.taken: list[str] = []
        self.unanswered = 0
        self.slowest = 0.0

    def finish(self) -> None:
        """Send no more."""
        self._over.set()
        self.join()

    def run(self) -> None:
        """Send until told to finish."""
        due = time.monotonic()
        while not self._over.is_set():
            due = max(due + self._pause, time.monotonic() - 1)
            self._over.wait(max(due - time.monotonic(), 0))
            self._send()

    def _send(self) -> None:
        method, path, body, headers = self._request()
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self._plane.port, timeout=10)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            answer.read(1 << 16)
        except (OSError, http.client.HTTPException, ValueError):  # nobody there, or he hung up on it
            self.unanswered += 1
            return
        finally:
            connection.close()
        self.slowest = max(self.slowest, time.monotonic() - began)
        self.answers[answer.status] += 1
        told = f"{answer.status} to {method} {path[:80]}"
        if answer.status >= 500 and answer.status != 503:
            self.faults.append(told)
        elif answer.status < 300 and method not in ("GET", "HEAD", "OPTIONS"):
            self.taken.append(told)

    def _request(self) -> tuple[str, str, bytes, dict[str, str]]:
        draw = self._draw
        method, path = draw.choice(self._known())
        parts = [self._word() if part.startswith("{") else part for part in path.split("/")]
        if draw.random() < 0.1:
            parts.append(self._word())
        if draw.random() < 0.1:
            method = draw.choice(("PUT", "PATCH", "DELETE", "POST", "TRACE"))
        query = f"?{self._word()}={self._word()}" if draw.random() < 0.5 else ""
        headers = {"Content-Type": draw.choice(("application/json", "text/plain", "application/x-www-form"))}
        if draw.random() < 0.3:
            headers["Authorization"] = f"Bearer {self._word()}"
        return method, "/".join(parts) + query, self._body(), headers

    def _known(self) -> list[tuple[str, str]]:
        if not self._paths:
            try:
                address = f"http://127.0.0.1:{self._plane.port}/openapi.json"
                with urlopen(address, timeout=10) as answer:
                    paths = json.load(answer)["paths"]
            except OSError:
                return [("POST", "/v1/jobs"), ("GET", "/v1/status")]
            methods = {"get", "put", "post", "patch", "delete"}
            self._paths = [(m.upper(), p) for p, ways in paths.items() for m in methods & set(ways)]
            self._paths = [known for known in sorted(self._paths) if "stream" not in known[1]]
        return self._paths

    def _word(self) -> str:
        words = ("-1", "0", "%00", "%2e%2e%2f", "9" * 40, "lab", "NaN", "%F0%9F%92%A5", "a" * 300, "'--", "%")
        return self._draw.choice(words)

    def _body(self) -> bytes:
        draw = self._draw
        kind = draw.randrange(5)
        if kind == 0:
            return draw.randbytes(draw.randrange(200))
        values: list[Any] = [None, -1, 1e308, "x" * draw.randrange(1000), [], {}, True, [[[]]], 2**70]
        names = ("id", "account", "gpus", "argv", "min_runtime", "share", "reason", "version", "node", "x")
        text = json.dumps({draw.choice(names): draw.choice(values) for _ in range(draw.randrange(8))})
        return text[: draw.randrange(1, len(text) + 1)].encode() if kind == 1 else text.encode()
