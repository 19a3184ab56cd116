"""Settings from environment variables, as pydantic-settings reads them.

Apart from `config.sources`, so that a collector that is configured otherwise imports no library
for it.
"""

from __future__ import annotations

from typing import Any, cast

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from hubbub.collector.config.settings import Settings


class Environment(EnvSettingsSource):
    """The variables that begin with a prefix; an empty one counts as unset.

    Parameters
    ----------
    prefix : str
    nesting : str
        What separates the name of a table from that of its entry.
    """

    def __init__(self, prefix: str, nesting: str) -> None:
        super().__init__(
            cast("type[BaseSettings]", Settings),  # of which it needs the fields
            env_prefix=prefix,
            env_nested_delimiter=nesting,
            env_ignore_empty=True,
        )

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Return a table or list from JSON; what isn't JSON is left to the checks of the field."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value
