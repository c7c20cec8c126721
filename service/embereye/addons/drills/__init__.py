"""Drills: the hub announces faults that people make in their cluster, and signs the report."""
