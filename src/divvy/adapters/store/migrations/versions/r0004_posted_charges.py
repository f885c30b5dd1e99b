"""Charges that routers have posted, by their ids, so that one that comes twice is charged once.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "posted",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("account", sa.String(512), nullable=False),
        sa.Column("charge", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
    )
    op.create_index("posted_at", "posted", ["at"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("posted")
