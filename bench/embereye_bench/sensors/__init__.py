"""Benchmarks of the sensor path."""
