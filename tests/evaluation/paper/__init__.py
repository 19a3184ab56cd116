"""The RAPPOR paper's experiments and headline numbers."""
