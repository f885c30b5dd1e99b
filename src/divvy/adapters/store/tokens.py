"""Bearer tokens in the store: their hashes, whom they speak for, when they were used last."""

from __future__ import annotations

import json
from collections.abc import Mapping

import sqlalchemy as sa

from divvy.adapters.store.database import Database
from divvy.adapters.store.tables import token
from divvy.control.token import TokenRow


class TokenTable:
    """Keeps tokens; every method is one short transaction and may be called from any thread.

    Args:
        database: The store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[TokenRow]:
        """Return the tokens that were not revoked, oldest first."""
        columns = [token.c[name] for name in TokenRow._fields]
        query = sa.select(*columns).where(token.c.revoked.is_(None)).order_by(token.c.created, token.c.id)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [TokenRow(*row)._replace(accounts=tuple(json.loads(row.accounts))) for row in rows]

    def add(self, row: TokenRow) -> None:
        """Keep a token."""
        values = {**row._asdict(), "accounts": json.dumps(row.accounts)}
        with self._database.write() as connection:
            connection.execute(token.insert().values(values))

    def revoke(self, name: str, at: int) -> bool:
        """Revoke a token; return whether one of that id was in force. The row stays, for the record."""
        statement = token.update().where(token.c.id == name, token.c.revoked.is_(None)).values(revoked=at)
        with self._database.write() as connection:
            return bool(connection.execute(statement).rowcount)

    def used(self, times: Mapping[str, int]) -> None:
        """Note when tokens were used last (ms), by id."""
        statement = (
            token.update()
            .where(token.c.id == sa.bindparam("id_"))
            .values(last_used=sa.bindparam("last_used_"))
        )
        with self._database.write() as connection:
            connection.execute(statement, [{"id_": name, "last_used_": at} for name, at in times.items()])
