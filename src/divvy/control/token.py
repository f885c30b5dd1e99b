"""Bearer tokens as they are kept."""

from __future__ import annotations

from typing import NamedTuple


class TokenRow(NamedTuple):
    """A token as it is kept: never the secret, only its SHA-256. Times are ms.

    Attributes:
        id: Public part, by which it is looked up.
        hash: SHA-256 of the whole token, hexadecimal.
        user: Whom it speaks for.
        role: viewer, submitter, owner or admin.
        accounts: Subtrees that it may submit to.
        label: What it is for.
        created: When it was made.
        created_by: By whom.
        expires: When it stops; None: never.
        last_used: When it was used last, to the minute; None: never.
    """

    id: str
    hash: str
    user: str
    role: str
    accounts: tuple[str, ...]
    label: str
    created: int
    created_by: str
    expires: int | None = None
    last_used: int | None = None
