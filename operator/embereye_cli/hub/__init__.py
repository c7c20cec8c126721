"""Commands that ask a running hub."""
