"""Filters of closed days' batch ids; and the function of PostgreSQL's triggers that close a day."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Make the table. The upkeep makes the filters, day by day."""
    op.create_table(
        "id_filters",
        sa.Column("digest", sa.LargeBinary(16), primary_key=True),
        sa.Column("part", sa.Integer, primary_key=True),
        sa.Column("words", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    if op.get_context().dialect.name != "postgresql":
        return
    op.execute("ALTER TABLE id_filters ALTER COLUMN words SET STORAGE EXTERNAL")
    op.execute(
        "CREATE OR REPLACE FUNCTION refuse_batch_ids() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION '% takes no more ids', TG_TABLE_NAME; END$$"
    )
