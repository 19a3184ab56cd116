"""What can be wrong with a parameter, a metric or a value.

Every message names the field, the value found (but never a recorded one) and what was expected.
"""


class HubbubError(Exception):
    """Base of every error that hubbub raises on purpose."""


class OptionError(HubbubError):
    """Options that leave something open, or contradict each other; named as the command's."""


class ParameterError(HubbubError, ValueError):
    """A RAPPOR parameter, or a combination of them, is not usable."""


class MetricError(HubbubError, ValueError):
    """A metrics.toml entry is wrong, or a metric isn't registered."""


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
    """Stored records, or counts of them, aren't what their parameters say."""


class SealedError(HubbubError, ValueError):
    """A sealing key, a sealed batch, or what was sealed isn't what it should be."""


class UnknownKeyError(SealedError):
    """Records are sealed to a key that isn't known."""


class NotOpenedError(SealedError):
    """A record wasn't sealed to the key that it names, or has been changed since."""
