"""What a curator has released of an opted-in group: its file, and the noise of its counts."""
