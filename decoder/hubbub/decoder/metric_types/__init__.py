"""The decoder's side of each metric type, in a module of its own."""
