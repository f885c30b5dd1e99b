"""divvy logs: what a job wrote, and what it writes."""

from __future__ import annotations

import codecs
import json
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Final

import typer

from divvy.cli.client import Client, Target, find_target
from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, complete_job
from divvy.errors import DivvyError

_WRITING: Final = threading.Lock()


class Stream(StrEnum):
    """Which of the streams of a job."""

    STDOUT = "stdout"
    STDERR = "stderr"
    BOTH = "both"


def verb(
    job: Annotated[str, typer.Argument(autocompletion=complete_job)],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    stream: Annotated[Stream, typer.Option(help="Which stream.")] = Stream.BOTH,
    offset: Annotated[int, typer.Option(min=0, help="Start at this byte of the stream.")] = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,  # noqa: ARG001 - accepted everywhere; a log has no headings to leave out
    no_truncate: NoTruncate = False,  # noqa: ARG001 - accepted everywhere; a log is never cut
    server: Server = "",
) -> None:
    """Print what a job wrote, byte for byte; with -f go on until it ends.

    What the job wrote to standard output and error goes to standard output and error here, so a pipe sees
    what it would have seen of the process itself. With --json: one object for each piece, with the byte
    offset at which the next one starts.
    """
    names = [Stream.STDOUT, Stream.STDERR] if stream is Stream.BOTH else [stream]
    target = find_target(server)
    if len(names) == 1 or not follow:
        for name in names:
            _copy(target, job, name, offset, follow=follow, write=_writer(job, name, offset, as_json=as_json))
        return
    _follow_both(target, job, offset, as_json=as_json)


def _follow_both(target: Target, job: str, offset: int, *, as_json: bool) -> None:
    """Copy both streams at once; a refusal of either is raised when both have ended."""
    refusals: list[DivvyError] = []

    def run(name: Stream) -> None:
        try:
            _copy(target, job, name, offset, follow=True, write=_writer(job, name, offset, as_json=as_json))
        except DivvyError as error:
            refusals.append(error)

    second = threading.Thread(target=run, args=(Stream.STDERR,), daemon=True)
    second.start()
    run(Stream.STDOUT)
    second.join()
    if refusals:
        raise refusals[0]


def _copy(
    target: Target, job: str, stream: Stream, offset: int, *, follow: bool, write: Callable[[bytes], None]
) -> None:
    pieces = Client(target).stream("jobs", job, "logs", stream=stream.value, offset=offset, follow=follow)
    for piece in pieces:
        with _WRITING:
            write(piece)


def _writer(job: str, stream: Stream, offset: int, *, as_json: bool) -> Callable[[bytes], None]:
    """Return what is done with each piece of a stream."""
    out = sys.stderr if stream is Stream.STDERR else sys.stdout
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a piece may end inside a character
    at = offset

    def raw(piece: bytes) -> None:
        out.buffer.write(piece)
        out.buffer.flush()

    def document(piece: bytes) -> None:
        nonlocal at
        at += len(piece)
        line = {
            "schema": "divvy.log/1",
            "job": job,
            "stream": stream.value,
            "text": decoder.decode(piece),
            "next_offset": at,
        }
        print(json.dumps(line), flush=True)

    return document if as_json else raw
