"""Programs that measure what hubbub claims, and the protocol's second implementation."""
