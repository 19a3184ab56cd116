"""All tables of the first release; later migrations start from these."""

import sqlalchemy as sa
from alembic import op

from hubbub.storage.schema import sample_nothing_of

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables, and what PostgreSQL has beside them."""
    _make_segments()
    op.create_table("upkeep_day", sa.Column("day", sa.Date, primary_key=True))
    op.create_table(
        "counts",
        sa.Column("metric", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("slice", sa.Text, primary_key=True),
        sa.Column("day", sa.Date, primary_key=True),
        sa.Column("reports", sa.BigInteger, nullable=False),
        sa.Column("counts", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    if op.get_context().dialect.name == "postgresql":
        _add_to_postgresql()


def _make_segments() -> None:
    op.create_table(
        "segments",
        _random_key("segment_id"),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("slice", sa.Text, nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("reports", sa.Integer, nullable=False),
        sa.Column("records", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "parameters",
        sa.Column("metric", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("parameters", sa.Text, nullable=False),
        sa.Column("dimensions", sa.Text, nullable=False),
    )
    # With the number of reports, so that counting reads the index alone.
    op.create_index("segments_by_day", "segments", ["metric", "version", "day", "slice", "reports"])


def _random_key(name: str) -> sa.Column[int]:
    type_ = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return sa.Column(name, type_, primary_key=True, autoincrement=False)


def _add_to_postgresql() -> None:
    """Add batch ids by day; and store records and counts as they are, which are random.

    None of them, and no id, gets into the statistics.
    """
    op.create_table("batch_ids", sa.Column("batch_id", sa.LargeBinary(16), nullable=False))
    op.create_table("open_day", sa.Column("day", sa.Date, primary_key=True))
    for table, column in (("segments", "records"), ("counts", "counts")):
        op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")
    for table, column in (("batch_ids", "batch_id"), ("segments", "records")):
        op.execute(sample_nothing_of(f"ONLY {table}", column))
