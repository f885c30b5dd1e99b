"""Bearer tokens: ``divvy_ID_SECRET``. The store keeps the SHA-256, never the token.

A secret has 256 random bits, so that a plain hash suffices: there is nothing to guess, and a stolen table
opens nothing. A token is found by its public id and compared in constant time; an id that is not there costs
the same comparison, so that time says nothing about ids either.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Final

from divvy.control.token import TokenRow
from divvy.errors import DivvyError, NotFoundError, UnauthenticatedError
from divvy.service.identity import Identity, Role
from divvy.service.ports import TokenStore
from divvy.units import MINUTE

_TOKEN: Final = re.compile(r"divvy_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NOBODY: Final = hashlib.sha256(b"nobody").hexdigest()
_USED_EVERY: Final = MINUTE


def token_hash(token: str) -> str:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def make_token(
    user: str,
    role: Role,
    *,
    accounts: Iterable[str] = (),
    label: str = "",
    now: int,
    created_by: str,
    expires: int | None = None,
) -> tuple[str, TokenRow]:
    """Return a new token and the row to keep of it; the token itself exists nowhere else."""
    name = secrets.token_hex(6)
    token = f"divvy_{name}_{secrets.token_urlsafe(32)}"
    row = TokenRow(
        name, token_hash(token), user, role.word, tuple(accounts), label, now, created_by, expires, None
    )
    return token, row


class TokenBook:
    """Knows the tokens, in memory; the store is asked again now and then, and for an id it does not know.

    Args:
        store: Where tokens are kept.
    """

    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self._rows: dict[str, TokenRow] = {}
        self._used: dict[str, int] = {}
        self.reload()

    def reload(self) -> None:
        """Read all tokens from the store; another process may have made or revoked some."""
        self._rows = {row.id: row for row in self._store.all()}

    def knows(self, header: str) -> bool:
        """Return whether the id in an Authorization header is known; an unknown one is worth a `reload`."""
        found = _TOKEN.fullmatch(header.removeprefix("Bearer ").strip())
        return found is not None and found.group(1) in self._rows

    def identify(self, header: str, now: int) -> Identity:
        """Return whom an Authorization header speaks for.

        Raises:
            UnauthenticatedError: If it is malformed, unknown, forged or expired. The answer does not tell
                an unknown token from a forged one.
        """
        scheme, _, token = header.partition(" ")
        found = _TOKEN.fullmatch(token.strip())
        if scheme.lower() != "bearer" or found is None:
            raise unauthenticated(
                "token-malformed",
                "the Authorization header holds no token of Divvy",
                "Bearer divvy_ID_SECRET",
            )
        row = self._rows.get(found.group(1))
        same = hmac.compare_digest(token_hash(found.group(0)), row.hash if row is not None else _NOBODY)
        if row is None or not same:
            raise unauthenticated("token-unknown", "the token is not known, or was revoked")
        if row.expires is not None and now >= row.expires:
            raise unauthenticated("token-expired", f"the token {row.id} has expired")
        if now - (self._used.get(row.id) or row.last_used or 0) >= _USED_EVERY:
            self._used[row.id] = now
        role = Role[row.role.upper()]
        return Identity(row.user, role, None if role is Role.ADMIN else row.accounts)

    def create(self, token: TokenRow) -> None:
        """Keep a new token."""
        self._store.add(token)
        self._rows = {**self._rows, token.id: token}

    def revoke(self, name: str, now: int) -> None:
        """Revoke a token; it stops working before this returns.

        Raises:
            NotFoundError: If there is none of that id.
        """
        self._rows = {key: row for key, row in self._rows.items() if key != name}
        if not self._store.revoke(name, now):
            raise NotFoundError.one("token-unknown", f"no token {name}", path="token", fix="divvy token list")

    def listed(self) -> Sequence[TokenRow]:
        """Return all tokens, oldest first, with their last use."""
        return [row._replace(last_used=self._used.get(row.id, row.last_used)) for row in self._rows.values()]

    def write_used(self) -> None:
        """Store when tokens were used last; called now and then, never by a request."""
        used, self._used = self._used, {}
        if used:
            self._store.used(used)
            self._rows = {
                key: row._replace(last_used=used.get(key, row.last_used)) for key, row in self._rows.items()
            }


def unauthenticated(code: str, message: str, allowed: str = "") -> DivvyError:
    """Return a refusal with status 401."""
    fix = "use the Unix socket on this machine, or a token made with `divvy token create`"
    return UnauthenticatedError.one(code, message, path="Authorization", allowed=allowed, fix=fix)
