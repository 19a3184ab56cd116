"""The schemas of a version to come: this one's, and two made-up migrations after its last.

The first expands: it adds a column and a table, with which this version can serve. The second one
contracts: it removes a table that the next version doesn't need, but this one might.
"""

import importlib.resources
import shutil
from pathlib import Path

import pytest

from hubbub.storage import schema

NOW = schema.REVISIONS[-1]
EXPANDED = "9001"
CONTRACTED = "9002"
SERVED_BY = {EXPANDED: NOW, CONTRACTED: EXPANDED}

_EXPANDING = f"""
import sqlalchemy as sa
from alembic import op

revision, down_revision = "{EXPANDED}", "{NOW}"

def upgrade():
    op.add_column("segments", sa.Column("region", sa.Text))
    op.create_table("regions", sa.Column("name", sa.Text, primary_key=True))
"""
_CONTRACTING = f"""
from alembic import op

revision, down_revision = "{CONTRACTED}", "{EXPANDED}"

def upgrade():
    op.drop_table("regions")
"""


def write_migrations(folder: Path) -> None:
    """Write all migrations of the next version into a new folder."""
    ours = importlib.resources.files("hubbub.storage") / "migrations"
    with importlib.resources.as_file(ours) as migrations:
        shutil.copytree(migrations, folder)
    (folder / "versions" / "v9001_expanding.py").write_text(_EXPANDING, encoding="utf-8")
    (folder / "versions" / "v9002_contracting.py").write_text(_CONTRACTING, encoding="utf-8")


class NextVersion:
    """Lets this process become the next version."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch

    def install(self) -> None:
        """Know its migrations from here on."""
        write_migrations(self._folder)
        revisions = (*schema.REVISIONS, EXPANDED, CONTRACTED)
        self._monkeypatch.setattr(schema, "REVISIONS", revisions)
        self._monkeypatch.setattr(schema, "SERVED_BY", SERVED_BY)
        self._monkeypatch.setattr(schema, "_MIGRATIONS", str(self._folder))
