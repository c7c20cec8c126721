"""Benchmarks, with baselines that run in the same command."""
