"""The regression matrix: many cases, many runs, and what is promised about them."""
