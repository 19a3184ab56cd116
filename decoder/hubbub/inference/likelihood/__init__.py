"""Joint maximum likelihood on whole reports."""
