"""Decisions about frames: analyse one next, shed it, or leave it with its sender."""
