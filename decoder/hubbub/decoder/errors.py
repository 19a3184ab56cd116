"""What can go wrong in the decoder besides its mathematics (`hubbub.inference.errors`)."""

from hubbub.inference.errors import DecoderError


class EngineError(DecoderError):
    """An engine can't be started or reached, or gave up on a task."""
