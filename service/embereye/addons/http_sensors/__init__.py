"""Sensors that send their readings by HTTP, and sensors that are read by HTTP."""
