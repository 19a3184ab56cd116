"""Reports out of a store and into one, as files that others can read."""
