"""Counts of reports that are forgotten, a row a day; random to a compressor, as records are."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "counts",
        sa.Column("metric", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("day", sa.Date, primary_key=True),
        sa.Column("reports", sa.BigInteger, nullable=False),
        sa.Column("counts", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    if op.get_context().dialect.name == "postgresql":
        op.execute("ALTER TABLE counts ALTER COLUMN counts SET STORAGE EXTERNAL")
