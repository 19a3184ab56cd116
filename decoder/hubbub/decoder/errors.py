"""What can go wrong in the decoder."""


class DecoderError(Exception):
    """Base of the errors that the decoder raises on purpose."""


class CandidateError(DecoderError):
    """The candidate list can't be read, or holds a string that no client could report."""


class UndecodableError(DecoderError):
    """The reports can't answer the question: none there, or not what the registry says."""


class InputError(DecoderError):
    """A file that another program wrote isn't what it should be; the message says where."""


class PlanError(DecoderError, ValueError):
    """No parameters can do what a plan needs; the message says what to change."""


class OptionError(DecoderError):
    """Options that leave something open, or contradict each other; named as the command's."""


class EngineError(DecoderError):
    """An engine can't be started or reached, or gave up on a task."""
