"""What a registry's metrics reveal, and the theorem behind each figure."""
