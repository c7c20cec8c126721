"""Checks that a camera's pictures can show a fire, and that the camera still has the same view."""
