"""The feed of alarm events, selections of it, and selections that are stored under a name."""
