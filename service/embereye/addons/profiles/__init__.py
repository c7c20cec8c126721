"""Profiles of zones: while people weld or cook, some kinds of sign are expected, until a named time."""
