"""Simulated cameras, one module per protocol that they send by."""
