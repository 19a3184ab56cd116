"""Speed as ratios: each figure beside a named baseline that was timed in the same run."""
