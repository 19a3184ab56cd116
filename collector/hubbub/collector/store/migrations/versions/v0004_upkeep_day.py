"""The day of the last upkeep, by which a clock that has jumped is noticed."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make the table; so far the youngest reports tell on which day the store was last in use."""
    op.create_table("upkeep_day", sa.Column("day", sa.Date, primary_key=True))
    youngest = "SELECT max(day) AS day FROM segments"
    op.execute(f"INSERT INTO upkeep_day SELECT day FROM ({youngest}) AS y WHERE day IS NOT NULL")  # noqa: S608
