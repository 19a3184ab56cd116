"""Why reports can't be decoded, or parameters can't be found."""

from hubbub.protocol import HubbubError


class DecoderError(HubbubError):
    """Base of the errors that the decoder raises on purpose."""


class CandidateError(DecoderError):
    """The candidate list can't be read, or holds a string that no client could report."""


class UndecodableError(DecoderError):
    """The reports can't answer the question: none there, or unlike the registry."""


class InputError(DecoderError):
    """A file that another program wrote isn't what it should be; the message says where."""


class PlanError(DecoderError, ValueError):
    """No parameters can do what a plan needs; the message says what to change."""
