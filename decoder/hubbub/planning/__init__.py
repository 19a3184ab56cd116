"""Before anything is collected: which parameters, how many reports, and what they reveal."""
