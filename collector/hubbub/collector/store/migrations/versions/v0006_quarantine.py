"""Reports that no registry knows yet, in a table like that of segments."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "quarantine",
        sa.Column(
            "quarantine_id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("reports", sa.Integer, nullable=False),
        sa.Column("records", sa.LargeBinary, nullable=False),
    )
    columns = ["metric", "version", "width", "day", "reports"]
    op.create_index("quarantine_by_day", "quarantine", columns)
    if op.get_context().dialect.name == "postgresql":
        op.execute("ALTER TABLE quarantine ALTER COLUMN records SET STORAGE EXTERNAL")
