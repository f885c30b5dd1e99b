"""Bearer tokens: a TOML file of accounts and the hashes of their tokens; no token is ever kept."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from divvy.errors import Fault, InputError

_HASH: Final = re.compile(r"[0-9a-f]{64}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_HELP: Final = '[accounts.NAME] with sha256 = ["64 hex digits", ...] and perhaps admin = true'


class Holder(NamedTuple):
    """Whose a token is: an account, and whether it may administer the router."""

    name: str
    admin: bool


class Keys:
    """Who may ask, by the hash of the token.

    Args:
        holders: By SHA-256 in hex.
    """

    def __init__(self, holders: Mapping[str, Holder]) -> None:
        self._holders = holders

    def find(self, field: bytes) -> Holder | None:
        """Return whose token an ``Authorization`` field carries; None for nobody's."""
        kind, _, token = field.partition(b" ")
        if kind.lower() != b"bearer" or not token:
            return None
        return self._holders.get(hashlib.sha256(token.strip()).hexdigest())


def read_keys(text: str, path: str) -> Keys:
    """Return the tokens in a file.

    Raises:
        InputError: With everything that is wrong.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also lists nested too deep and numbers too long
        raise InputError.one("serve-tokens", f"no TOML: {error}", path=path, allowed=_HELP) from error
    accounts = document.get("accounts")
    if not isinstance(accounts, dict) or not accounts or set(document) != {"accounts"}:
        raise InputError.one("serve-tokens", "no accounts, or other things beside", path=path, allowed=_HELP)
    faults: list[Fault] = []
    holders: dict[str, Holder] = {}
    for name, row in accounts.items():
        for token in _tokens(name, row, f"{path}: accounts.{name}", faults):
            if token in holders:
                faults.append(Fault("serve-tokens", path, f"a token of {name} is {holders[token].name}'s"))
            holders[token] = Holder(name, bool(row.get("admin", False)))
    if faults:
        raise InputError(f"{path} has faults", faults)
    return Keys(holders)


def _tokens(name: str, row: Any, where: str, faults: list[Fault]) -> list[str]:
    """Return the hashes of one account; what is wrong goes to `faults`."""
    listed = row.get("sha256") if isinstance(row, dict) else None
    if (
        _NAME.fullmatch(name) is None
        or not isinstance(listed, list)
        or not listed
        or set(row) - {"sha256", "admin"}
        or not isinstance(row.get("admin", False), bool)
    ):
        faults.append(Fault("serve-tokens", where, "not an account", _HELP))
        return []
    wrong = [one for one in listed if not isinstance(one, str) or _HASH.fullmatch(one) is None]
    faults += [Fault("serve-tokens", where, f"{str(one)[:80]!r} is no hash", _HELP) for one in wrong]
    return [one for one in listed if one not in wrong]
