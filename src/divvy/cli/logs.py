"""divvy logs: what a job wrote, and what it writes."""

from __future__ import annotations

import codecs
import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
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
    attempt: Annotated[int, typer.Option(min=0, help="Which run of it; 0: the last one.")] = 0,
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
    reading = _Reading(find_target(server), job, offset, attempt, follow, as_json)
    if len(names) == 2 and follow:
        reading.copy_both()
        return
    for name in names:
        reading.copy(name)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What was asked for, of which job."""

    target: Target
    job: str
    offset: int
    attempt: int
    follow: bool
    as_json: bool

    def copy(self, stream: Stream) -> None:
        """Write a stream to where it belongs."""
        write = self._write_documents(stream) if self.as_json else _write_bytes(stream)
        query = {"offset": self.offset, "attempt": self.attempt or None, "follow": self.follow}
        for piece in Client(self.target).stream("jobs", self.job, "logs", stream=stream.value, **query):
            with _WRITING:
                write(piece)

    def copy_both(self) -> None:
        """Write both streams at once; a refusal of either is raised when both have ended."""
        refusals: list[DivvyError] = []

        def run(stream: Stream) -> None:
            try:
                self.copy(stream)
            except DivvyError as error:
                refusals.append(error)

        second = threading.Thread(target=run, args=(Stream.STDERR,), daemon=True)
        second.start()
        run(Stream.STDOUT)
        second.join()
        if refusals:
            raise refusals[0]

    def _write_documents(self, stream: Stream) -> Callable[[bytes], None]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a piece may end inside a character
        at = self.offset

        def write(piece: bytes) -> None:
            nonlocal at
            at += len(piece)
            text = decoder.decode(piece)
            line = {"schema": "divvy.log/1", "job": self.job, "stream": stream.value}
            print(json.dumps({**line, "text": text, "next_offset": at}), flush=True)

        return write


def _write_bytes(stream: Stream) -> Callable[[bytes], None]:
    out = sys.stderr if stream is Stream.STDERR else sys.stdout

    def write(piece: bytes) -> None:
        out.buffer.write(piece)
        out.buffer.flush()

    return write
