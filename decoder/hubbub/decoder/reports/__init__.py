"""Stored reports: read, counted, looked at, and kept whole where they are needed whole."""
