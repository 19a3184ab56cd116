"""A whole service on one machine, of which one process after another is killed."""
