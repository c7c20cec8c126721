"""Commands that ask a cluster."""
