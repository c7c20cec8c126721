"""Attacks on real processes; meanwhile honest devices are served as ever."""
