"""Recorded results: with machine and commit, compared with each other, and a gate for changes."""
