"""Devices as a load: a steady rate whatever the server does, and what it took, counted."""
