"""A type that hubbub doesn't have, on the decoder's side: letters in the alphabet's order."""

from hubbub.decoder.type_decoder import CategoryDecoder


class LetterDecoder(CategoryDecoder):
    """What all types have whose values are listed."""
