"""Webhooks: selected events, sent to an address until its receiver has accepted them."""
