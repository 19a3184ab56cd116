"""The schemas of a version to come: this one's, and two made-up migrations after its last.

The first expands: it adds a column and a table, with which this version can serve. The second one
contracts: it removes a table that the next version doesn't need, but this one might.
"""

import sqlalchemy as sa

from hubbub.storage import schema

NOW = schema.revisions()[-1]
EXPANDED = "9001"
CONTRACTED = "9002"


def _expand(connection: sa.Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE segments ADD COLUMN region TEXT")
    connection.exec_driver_sql("CREATE TABLE regions (name TEXT PRIMARY KEY)")


def _contract(connection: sa.Connection) -> None:
    connection.exec_driver_sql("DROP TABLE regions")


MIGRATIONS = {EXPANDED: _expand, CONTRACTED: _contract}
SERVED_BY = {EXPANDED: NOW, CONTRACTED: EXPANDED}


def install() -> None:
    """Let this process become the next version."""
    schema.MIGRATIONS.update(MIGRATIONS)
    schema.SERVED_BY.update(SERVED_BY)
