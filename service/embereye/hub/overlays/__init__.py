"""Overlays: a sensor's thermal picture shown on top of a camera's picture."""
