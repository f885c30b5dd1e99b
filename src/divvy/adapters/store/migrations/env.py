"""Run by Alembic: apply the migrations on the connection that `schema.migrate` hands over."""

from __future__ import annotations

from alembic import context

from divvy.adapters.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
