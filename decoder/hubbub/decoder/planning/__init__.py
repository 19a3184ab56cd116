"""Which parameters, and how many reports: the theory of what can be found."""
