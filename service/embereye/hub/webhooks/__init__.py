"""Webhooks: every event that one asks for, sent to an address of somebody else until that has taken it."""
