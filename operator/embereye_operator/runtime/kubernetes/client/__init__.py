"""Talking to an API server: its kinds, its answers packed, its wish to be left alone for a while."""
