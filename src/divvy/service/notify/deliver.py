"""Deliveries: one notice to one receiver, by a command without a shell or by a signed POST."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import signal
import subprocess
import time
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

from divvy.service.notify.receivers import Receiver
from divvy.units import SECOND

_WORDS: Final = 300


def deliver(receiver: Receiver, name: str, body: bytes) -> str:
    """Hand a notice over; return what went wrong, empty when it was taken.

    Args:
        receiver: Who.
        name: Id of the notice; the same when it is delivered again.
        body: The notice as JSON.
    """
    return _run(receiver, name, body) if receiver.command else _post(receiver, name, body)


def signature(secret: str, at: str, body: bytes) -> str:
    """Return the value of ``Divvy-Signature``: HMAC-SHA256 over the timestamp, a dot, and the body."""
    return "sha256=" + hmac.new(secret.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()


def _run(receiver: Receiver, name: str, body: bytes) -> str:
    """Run the command with the notice on standard input; exit code 0 means that it was taken."""
    known = {key: os.environ[key] for key in ("PATH", "LANG", "HOME") if key in os.environ}
    try:
        process = subprocess.Popen(
            receiver.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**known, "DIVVY_NOTICE_ID": name},
            start_new_session=True,
        )
    except OSError as error:
        return f"cannot run {receiver.command[0]}: {error.strerror}"
    try:
        _, said = process.communicate(body, timeout=receiver.timeout / SECOND)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"not done within {receiver.timeout / SECOND:g} s"
    if process.returncode:
        return f"exit code {process.returncode}: {said.decode(errors='replace').strip()[-_WORDS:]}"
    return ""


def _post(receiver: Receiver, name: str, body: bytes) -> str:
    """Post the notice; an answer of 2xx means that it was taken, redirections are not followed."""
    parts = urlsplit(receiver.url)
    at = str(int(time.time()))
    headers = {"Content-Type": "application/json", "Divvy-Notice": name, "Divvy-Timestamp": at}
    if receiver.secret:
        headers["Divvy-Signature"] = signature(receiver.secret, at, body)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=receiver.timeout / SECOND)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", target, body, headers)
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        return str(error) or type(error).__name__
    finally:
        connection.close()
    return "" if 200 <= status < 300 else f"answered {status}"
