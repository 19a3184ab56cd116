"""The protocol once more, written from docs/protocol alone: slow, plain, and sharing no code.

It made the committed test vectors (`python -m evaluation.reference docs/protocol/vectors`), so that
the client is held against the document and not against itself.
"""
