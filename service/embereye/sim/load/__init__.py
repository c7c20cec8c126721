"""Simulated devices as a load: they send at a steady rate regardless of the server, and count the results."""
