"""Sections of a day's batch ids in PostgreSQL.

No id is moved: days that were begun before stay without sections.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column by which a day's table is divided. With a default, no row is written.

    All collectors wait behind it, so it doesn't wait for a backup: pg_dump locks the table, too.
    """
    if op.get_context().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")
        section = sa.Column("section", sa.SmallInteger, nullable=False, server_default="0")
        op.add_column("batch_ids", section)
