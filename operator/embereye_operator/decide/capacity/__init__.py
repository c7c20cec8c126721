"""Capacity planning: the resources that a fleet needs, from measured costs and the scaling law."""
