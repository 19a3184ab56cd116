"""A store in PostgreSQL, which several collectors may share."""

from hubbub.storage.postgresql.batch_ids import open_database

__all__ = ["open_database"]
