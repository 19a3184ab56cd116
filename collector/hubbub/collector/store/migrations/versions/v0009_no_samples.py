"""No samples of ids and records in PostgreSQL's statistics.

Tables of days that were begun before keep theirs until they are dropped.
"""

from alembic import op

from hubbub.collector.store.schema import sample_nothing_of

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Set it for the tables that are there for good; days and sections get it when they begin."""
    if op.get_context().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")
        for table, column in (
            ("batch_ids", "batch_id"),
            ("segments", "records"),
            ("quarantine", "records"),
            ("id_filters", "words"),
        ):
            op.execute(sample_nothing_of(f"ONLY {table}", column))
