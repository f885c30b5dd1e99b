"""What routes share, and who is asking: the two things that every route gets by its signature."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Final

from anyio.to_thread import run_sync
from fastapi import Depends, Request

from divvy.errors import DivvyError, Fault, UnavailableError
from divvy.fleet.account import AccountTree
from divvy.service.answers import Rendered
from divvy.service.identity import Identity, Role
from divvy.service.metrics import Metrics
from divvy.service.mirror import Mirror
from divvy.service.pairing import PairingDesk
from divvy.service.peer import PEER, Peer, user_name
from divvy.service.ports import Backend, Intake
from divvy.service.statements import Statements
from divvy.service.submission import Submissions
from divvy.service.tokens import TokenBook, unauthenticated

#: Streams and followed logs that may be open at once.
MAX_STREAMS: Final = 256
#: How long a request waits for the scheduler's verdict before it says that it is stored and pending.
VERDICT_SECONDS: Final = 5.0
#: Statements and the like that may be computed at once.
MAX_HEAVY: Final = 2
_RELOAD_SECONDS: Final = 0.02


@dataclass(slots=True)
class Service:
    """Everything that routes share.

    Attributes:
        backend: The rest of the system.
        mirror: Newest state.
        tokens: Bearer tokens.
        submissions: Stores jobs.
        statements: Makes statements.
        metrics: Counters and gauges.
        pairing: Gives out pairs of prefill and decode places.
        status: The rendered answer of /v1/status.
        streams: Open streams.
        heavy: Held by answers that take much computing, so that a few of them leave room for the rest.
    """

    backend: Backend
    mirror: Mirror
    tokens: TokenBook
    submissions: Submissions
    statements: Statements
    metrics: Metrics
    pairing: PairingDesk
    status: Rendered
    streams: int = 0
    heavy: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_HEAVY))
    _reloading: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def intake(self) -> Intake:
        """Return where requests go."""
        return self.backend.intake

    def now(self) -> int:
        """Return the wall clock, ms."""
        return self.backend.now()

    def tree(self) -> AccountTree:
        """Return the account tree in force."""
        return self.mirror.in_force().budget.tree

    async def identify(self, request: Request) -> Identity:
        """Return who asks: a bearer token if there is one, else the peer of the Unix socket.

        Raises:
            UnauthenticatedError: If neither says so convincingly.
        """
        header = request.headers.get("authorization")
        if header is not None:
            await self._reload_tokens(header)
            return self.tokens.identify(header, self.now())
        peer: Peer | None = getattr(request.state, PEER, None)
        if peer is None:
            raise unauthenticated("token-missing", "this address needs a token", "Bearer divvy_ID_SECRET")
        return local_identity(peer, self.backend.daemon_uid)

    async def still_known(self, request: Request) -> bool:
        """Return whether the caller of a long-lived answer is still known: its token may have ended."""
        try:
            await self.identify(request)
        except DivvyError:
            return False
        return True

    async def _reload_tokens(self, header: str) -> None:
        """Ask the store again for a token that is not known: another process may have made it.

        A flood of made-up tokens asks one after the other, a bounded number of times a second; callers with a
        known token do not wait for it.
        """
        if self.tokens.knows(header):
            return
        async with self._reloading:
            if not self.tokens.knows(header):
                await asyncio.sleep(_RELOAD_SECONDS)
                await run_sync(self.tokens.reload)

    @contextlib.asynccontextmanager
    async def streaming(self) -> AsyncIterator[None]:
        """Count a long-lived answer while the block runs."""
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    def require_stream(self) -> None:
        """Refuse one more long-lived answer where there are too many.

        Raises:
            UnavailableError: If there are.
        """
        if self.streams >= MAX_STREAMS:
            raise UnavailableError.one(
                "streams-full",
                f"{self.streams} streams are open",
                allowed=f"at most {MAX_STREAMS}",
                fix="close some, or ask again without following",
            )

    async def verdict(self, seq: int) -> dict[str, object] | None:
        """Return what came of a request, None if the scheduler has not answered in time.

        The mirror has caught up by then: who asks next sees the change.

        Raises:
            DivvyError: If the scheduler refused it.
        """
        outcome = await run_sync(self.intake.outcome, seq, VERDICT_SECONDS)
        if outcome is None:
            return None
        if outcome.fault is not None:
            raise outcome.fault
        await self.mirror.refresh()
        return outcome.result


def local_identity(peer: Peer, daemon_uid: int) -> Identity:
    """Return who is at the other end of the Unix socket.

    Root and the user who runs the control plane are administrators. Everybody else on the machine may submit
    to any account and acts as owner where the budget names them; what they use is charged and shown.
    """
    admin = peer.uid in (0, daemon_uid)
    role = Role.ADMIN if admin else Role.OWNER
    return Identity(user_name(peer.uid), role, None, "socket", peer.uid, peer.gid)


def printable_fault(path: str, text: str) -> list[Fault]:
    """Return the fault of a free text with control characters; line breaks are none."""
    if all(char.isprintable() or char == "\n" for char in text):
        return []
    return [Fault("text-control", path, "holds a control character", "printable text", "remove it")]


async def _service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)  # noqa: S101 - set by create_app
    return service


Shared = Annotated[Service, Depends(_service)]


async def _caller(request: Request, service: Shared) -> Identity:
    return await service.identify(request)


async def _admin(request: Request, service: Shared) -> Identity:
    caller = await service.identify(request)
    caller.require(Role.ADMIN, f"use {request.method} {request.url.path}")
    return caller


async def _anybody(request: Request, service: Shared) -> Identity | None:
    try:
        return await service.identify(request)
    except DivvyError:
        return None


#: Anybody who is known.
Caller = Annotated[Identity, Depends(_caller)]
#: Administrators only.
Admin = Annotated[Identity, Depends(_admin)]
#: Known or not.
Anybody = Annotated[Identity | None, Depends(_anybody)]
