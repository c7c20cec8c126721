"""Copies of a hub's stored history: backup, restore and migration."""
