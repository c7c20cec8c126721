"""Commands that set a machine up, and check it."""
