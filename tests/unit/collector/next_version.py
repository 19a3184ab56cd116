"""The schema of a version to come: this one's, and a made-up migration after its last.

It adds a column and a table, with which this version can serve.
"""

import sqlalchemy as sa

from hubbub.storage import schema

NOW = schema.revisions()[-1]
NEXT = "9001"


def _add(connection: sa.Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE segments ADD COLUMN region TEXT")
    connection.exec_driver_sql("CREATE TABLE regions (name TEXT PRIMARY KEY)")


MIGRATIONS = {NEXT: schema.Migration(_add, NOW)}


def install() -> None:
    """Let this process become the next version."""
    schema.MIGRATIONS.update(MIGRATIONS)
