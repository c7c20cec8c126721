"""Benchmarks of the camera path."""
