"""Errors in parameters, metrics and values, and helpers that word their messages.

Every message names the field, the value found (but never a recorded one) and what was expected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self


class HubbubError(Exception):
    """Base of every error that hubbub raises on purpose.

    Attributes
    ----------
    field : str
        What is wrong, as its owner names it, such as "metrics.homepage.k"; empty if the message is
        about no single field.
    found : object
        Its value, or None.
    expected : str
        What it must be.
    """

    field: str = ""
    found: object = None
    expected: str = ""

    @classmethod
    def of(cls, field: str, found: object, expected: str) -> Self:
        """Return the error of a field's value, in the one form of such messages."""
        error = cls(f"{field} = {found!r}: must be {expected}")
        error.field, error.found, error.expected = field, found, expected
        return error

    @classmethod
    def about(cls, field: str, message: str) -> Self:
        """Return an error about a field; `message` is the whole text."""
        error = cls(message)
        error.field = field
        return error


class Option(NamedTuple):
    """An option that a message names: an argument in Python, with dashes in a command."""

    name: str
    value: object = None
    key: str = ""

    def __str__(self) -> str:
        name = f"{self.name}[{self.key!r}]" if self.key else self.name
        return f"{name}={'...' if self.value is None else self.value}"

    @property
    def on_command_line(self) -> str:
        """The option as a command has it."""
        dashed = "METRIC" if self.name == "metric" else "--" + self.name.replace("_", "-")
        value = f"{self.key}={self.value}" if self.key else self.value
        return dashed if value is None else f"{dashed} {value}"


class OptionError(HubbubError, ValueError):
    """Options that are incomplete, or contradict each other."""

    def __init__(self, *parts: str | Option) -> None:
        super().__init__("".join(map(str, parts)))
        self.parts = parts
        self.field = next((part.name for part in parts if not isinstance(part, str)), "")

    @property
    def on_command_line(self) -> str:
        """The message with options as commands have them."""
        return "".join(
            part if isinstance(part, str) else part.on_command_line for part in self.parts
        )


class ParameterError(HubbubError, ValueError):
    """A RAPPOR parameter, or a combination of them, is not usable."""


class MetricError(HubbubError, ValueError):
    """A metrics.toml entry is wrong, or a metric isn't registered."""

    @property
    def faults(self) -> tuple[MetricError, ...]:
        """The faults, one by one."""
        return (self,)


class RegistryError(MetricError):
    """Several entries of metrics.toml are wrong."""

    def __init__(self, faults: Sequence[MetricError]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self._faults = tuple(faults)

    @property
    def faults(self) -> tuple[MetricError, ...]:
        """The faults, one by one."""
        return self._faults


class UnknownMetricError(MetricError, KeyError):
    """A metric's name isn't in the registry."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the message in quotes


class EncodingError(HubbubError, ValueError):
    """A value can't be encoded as the metric's type demands."""


class UnknownCategoryError(EncodingError):
    """A value isn't one of an enum's categories."""


class CompactError(HubbubError, ValueError):
    """A body isn't a batch in the compact form, or a batch can't take that form."""


class TooManyReportsError(CompactError):
    """A compact body has more reports than its reader takes."""


class RecordsError(HubbubError, ValueError):
    """Stored records, or counts of them, don't match their parameters."""


class SwitchError(HubbubError, ValueError):
    """A switch's file, or a key for it, isn't what it should be."""


class StateError(HubbubError):
    """The client's state can't be trusted, or is that of another client."""


class OtherApplicationError(StateError):
    """The client's state directory is another application's."""


class ForgottenError(StateError):
    """Another process has deleted this client's state."""


class UnavailableError(HubbubError):
    """The client's state can't be read or written for now (in use, disk full): try again later."""

    is_busy = False
    """Whether another process is using it."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which takes an s unless there is one.

    `noun`: of one: "report", "batch id". Returns thousands are set off by commas.

    Examples
    --------
    >>> counted(1, "report"), counted(2500, "report")
    ('1 report', '2,500 reports')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
