"""Results that are kept: recorded with machine and commit, compared with each other, and a gate."""
