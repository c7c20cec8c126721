"""Clips of alarms: their files, and the index of them."""
