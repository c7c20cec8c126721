"""Differences between candidates and the detection in force."""
