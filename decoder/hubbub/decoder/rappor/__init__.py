"""The files and parameters of google/rappor."""
