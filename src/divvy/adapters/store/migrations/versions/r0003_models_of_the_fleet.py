"""How many devices of each model a fleet had, for what accounts could be owed of them.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column; what is there already counts as one model, as it did."""
    op.add_column("capacity", sa.Column("models", sa.Text(), nullable=False, server_default="{}"))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("capacity", "models")
