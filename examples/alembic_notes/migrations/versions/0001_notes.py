"""Create the table of notes, and keep its index in step."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "notes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.attach_evervec("notes", text="{title}\n\n{body}", kind="note")


def downgrade() -> None:
    op.detach_evervec("note")
    op.drop_table("notes")
