"""Add the author, and make it a field to filter by."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    with op.batch_alter_table("notes") as batch:
        batch.add_column(sa.Column("author", sa.String(), nullable=True))
    op.attach_evervec("notes", text="{title}\n\n{body}", kind="note", metadata=["author"])


def downgrade() -> None:
    op.attach_evervec("notes", text="{title}\n\n{body}", kind="note")
    with op.batch_alter_table("notes") as batch:
        batch.drop_column("author")
    op.attach_evervec_again("note")
