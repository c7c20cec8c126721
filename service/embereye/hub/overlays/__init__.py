"""Thermal pictures laid over cameras' pictures."""
