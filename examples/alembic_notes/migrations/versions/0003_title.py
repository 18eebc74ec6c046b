"""Make titles longer. On SQLite batch mode rebuilds the table, and its triggers are lost: it is
attached again with what was given before."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("notes") as batch:
        batch.alter_column("title", type_=sa.Text(), existing_nullable=False)
    op.attach_evervec_again("note")


def downgrade() -> None:
    with op.batch_alter_table("notes") as batch:
        batch.alter_column("title", type_=sa.String(), existing_nullable=False)
    op.attach_evervec_again("note")
