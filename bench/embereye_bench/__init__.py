"""Benchmarks: what the system reaches, beside baselines that run in the same command."""
