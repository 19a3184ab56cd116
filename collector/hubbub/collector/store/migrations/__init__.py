"""The schema's history, which Alembic runs when a collector starts; see `schema`."""
