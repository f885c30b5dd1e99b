"""divvy pair: choose a prefill and a decode place by when the KV cache is there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, connect
from divvy.cli.render import Column, Output, Span
from divvy.errors import InputError
from divvy.units import BYTES_HELP, parse_bytes, parse_duration

_COLUMNS = (
    Column("PREFILL"),
    Column("DECODE"),
    Column("PREDICTED", right=True),
    Column("SENT", right=True),
    Column("CACHED", right=True),
    Column("WHY", shrink=12),
)


def verb(
    prefill: Annotated[str, typer.Option("--prefill", help="Candidates by comma, the preferred first.")],
    decode: Annotated[str, typer.Option("--decode", help="Candidates by comma.")],
    kv_bytes: Annotated[str, typer.Option("--kv-bytes", help=f"Size of the KV cache: {BYTES_HELP}.")],
    deadline: Annotated[str, typer.Option("--deadline", help="From now, such as 200ms.")] = "",
    descriptors: Annotated[int, typer.Option("--descriptors", min=1, help="Pieces it lies in.")] = 1,
    hashes: Annotated[str, typer.Option("--hash-ids", help="Hashes of its blocks by comma, in order.")] = "",
    cached: Annotated[
        list[str] | None,
        typer.Option("--cached", help="PLACE=HASH,HASH: what a decode place holds; repeat for more."),
    ] = None,
    topo: Annotated[
        list[Path] | None,
        typer.Option(
            "--topo",
            metavar="FILE",
            help="Decide here by inputs, costs with them; else the server does.",
        ),
    ] = None,
    server: Server = "",
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Choose the pair whose KV cache is there first: route, predicted time, why, and what to set.

    Without --topo the control plane decides (divvy up --topology FILE); it knows what is on the way.
    """
    body: dict[str, Any] = {
        "prefill": _words(prefill, "--prefill"),
        "decode": _words(decode, "--decode"),
        "kv_bytes": _bytes(kv_bytes),
        "descriptors": descriptors,
        "hash_ids": [word for word in hashes.split(",") if word],
        "cached": dict(_held(text) for text in cached or []),
    }
    if deadline:
        body["deadline_seconds"] = _seconds(deadline)
    if topo:
        from divvy.bootstrap.interconnect import Interconnect  # noqa: PLC0415 - NumPy: only --topo pays for it
        from divvy.service.pairing import PairingDesk  # noqa: PLC0415 - same

        files = [str(path) for path in topo]
        document = PairingDesk(Interconnect(files)).pair(body)
    else:
        document = connect(server).post("pair", body=body)
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    chosen = document["pair"]
    if not output.machine(document, [f"{chosen['prefill']} {chosen['decode']}"]):
        _show(output, document)


def _show(output: Output, document: dict[str, Any]) -> None:
    write = output.screen.line
    chosen = document["pair"]
    write(Span(f"{chosen['prefill']} -> {chosen['decode']}", "bold"))
    for line in document["explanation"]:
        write(f"  {line}")
    rows = [
        (
            row["prefill"],
            row["decode"],
            "-" if row["predicted_seconds"] is None else f"{row['predicted_seconds'] * 1000:.4g} ms",
            f"{row['sent_bytes']:,}",
            str(row["cached_blocks"]),
            row["why"],
        )
        for row in document["others"]
    ]
    if rows:
        output.screen.table(_COLUMNS, rows)
    for side, values in document["settings"]["nixl_ucx"].items():
        write(Span(f"{side}: {' '.join(f'{key}={value}' for key, value in values.items())}", "dim"))


def _words(text: str, option: str) -> list[str]:
    """Return the words of a list by comma.

    Raises:
        InputError: If there is none.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise InputError.one("pair-empty", "no candidate is named", path=option, allowed="h0,h1")
    return words


def _held(text: str) -> tuple[str, list[str]]:
    """Return a place and the hashes that it holds."""
    place, equals, blocks = text.partition("=")
    if not place or not equals:
        raise InputError.one(
            "pair-cached", f"{text!r} names no place", path="--cached", allowed="PLACE=HASH,HASH"
        )
    return place, [word for word in blocks.split(",") if word]


def _bytes(text: str) -> int:
    """Return the bytes of the cache.

    Raises:
        InputError: If it is no positive number of bytes.
    """
    try:
        size = int(text) if text.isdigit() else parse_bytes(text)
        if size < 1:
            raise ValueError("0 bytes need no pair")  # noqa: TRY301 - one way to report it
    except ValueError as error:
        raise InputError.one("bytes", str(error), path="--kv-bytes", allowed=BYTES_HELP) from error
    return size


def _seconds(text: str) -> float:
    """Return a deadline in seconds.

    Raises:
        InputError: If it is no duration.
    """
    try:
        found = parse_duration(text) / 1000.0
        if found <= 0:
            raise ValueError("a deadline lies ahead")  # noqa: TRY301 - one way to report it
    except ValueError as error:
        raise InputError.one("deadline", str(error), path="--deadline", allowed="such as 200ms") from error
    return found
