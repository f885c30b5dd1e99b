"""Jobs with several accounts that may pay, or clusters where they may run.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add two lists, empty for every job that is there."""
    for name in ("budgets", "clusters"):
        op.add_column("job", sa.Column(name, sa.Text(), nullable=False, server_default="[]"))


def downgrade() -> None:
    """Drop them."""
    for name in ("budgets", "clusters"):
        op.drop_column("job", name)
