"""Simulated devices and cameras that speak the real protocols."""
