"""Ownership of fleets and objects: which operator reconciles a fleet, and who applied an object."""
