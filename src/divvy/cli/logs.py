"""divvy logs: what a job wrote, and what it writes."""

from __future__ import annotations

import codecs
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import typer

from divvy.cli.client import Client, Target, find_target
from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, complete_job
from divvy.cli.told import PAUSE_SECONDS, Told
from divvy.errors import DivvyError, UnavailableError

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
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,  # noqa: ARG001 - accepted everywhere; a log is never cut
    server: Server = "",
) -> None:
    """Print what a job wrote, byte for byte; with -f go on until it ends, over preemptions and restarts.

    What the job wrote to standard output and error goes to standard output and error here, so a pipe sees
    what it would have seen of the process itself. With --json: one object for each piece, with the byte
    offset at which the next one starts. That a followed job waits is said on standard error, unless -q.
    """
    names: list[Stream] = [Stream.STDOUT, Stream.STDERR] if stream is Stream.BOTH else [stream]
    reading = _Reading(find_target(server), job, offset, attempt, as_json)
    if not follow:
        for name in names:
            reading.copy(name)
        return
    told = Told(Client(reading.target), job, quiet=quiet)
    told.look()  # an unknown job is refused at once
    told.start()
    reading.follow(names, told)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What was asked for, of which job."""

    target: Target
    job: str
    offset: int
    attempt: int
    as_json: bool

    def copy(self, stream: Stream) -> None:
        """Write a stream, as far as it goes now, to where it belongs."""
        write = self._writer(stream)
        query = {"offset": self.offset, "attempt": self.attempt or None}
        for piece in Client(self.target).stream("jobs", self.job, "logs", stream=stream.value, **query):
            write(piece)

    def follow(self, streams: list[Stream], told: Told) -> None:
        """Write streams until the job ends; a refusal of any is raised when all have ended."""
        refusals: list[DivvyError] = []

        def run(stream: Stream) -> None:
            try:
                self._follow(stream, told)
            except DivvyError as error:
                refusals.append(error)

        others = [threading.Thread(target=run, args=(each,), daemon=True) for each in streams[1:]]
        for thread in others:
            thread.start()
        run(streams[0])
        for thread in others:
            thread.join()
        if refusals:
            raise refusals[0]

    def _follow(self, stream: Stream, told: Told) -> None:
        """Write one stream run by run, so that a broken connection can be taken up where it broke."""
        write = self._writer(stream)
        attempt, at = self.attempt or max(told.attempt, 1), self.offset
        while True:
            try:
                query = {"offset": at, "attempt": attempt, "follow": True}
                for piece in Client(self.target).stream(
                    "jobs", self.job, "logs", stream=stream.value, **query
                ):
                    told.back()
                    write(piece)
                    at += len(piece)
                newest, over = told.progress()
            except UnavailableError as error:
                told.away(error)
                continue
            told.back()
            if newest > attempt and not self.attempt:
                attempt, at = attempt + 1, 0
            elif over or self.attempt:
                return
            else:  # the server let go of a run that goes on
                time.sleep(PAUSE_SECONDS)

    def _writer(self, stream: Stream) -> Callable[[bytes], None]:
        write = self._write_documents(stream) if self.as_json else _write_bytes(stream)

        def safely(piece: bytes) -> None:
            with _WRITING:
                write(piece)

        return safely

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
