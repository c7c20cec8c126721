"""Benchmarks of the hub."""
