"""How Alembic reaches the database. The import of evervec's module registers its operations."""

from alembic import context
from models import URL, Base, engine

import evervec.integrations.alembic  # noqa: F401

OPTIONS = {"target_metadata": Base.metadata, "render_as_batch": True}

if context.is_offline_mode():
    context.configure(url=URL, literal_binds=True, **OPTIONS)
    with context.begin_transaction():
        context.run_migrations()
else:
    with engine.connect() as connection:
        context.configure(connection=connection, **OPTIONS)
        with context.begin_transaction():
            context.run_migrations()
