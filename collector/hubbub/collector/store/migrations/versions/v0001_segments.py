"""Segments, batch ids and parameters: the first tables, and what stores without a version have."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "segments",
        sa.Column(
            "segment_id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("reports", sa.Integer, nullable=False),
        sa.Column("records", sa.LargeBinary, nullable=False),
    )
    op.create_index("segments_by_metric", "segments", ["metric", "version", "day"])
    op.create_table(
        "batches",
        sa.Column("batch_id", sa.LargeBinary(16), primary_key=True),
        sa.Column("day", sa.Date, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "parameters",
        sa.Column("metric", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("parameters", sa.Text, nullable=False),
    )
