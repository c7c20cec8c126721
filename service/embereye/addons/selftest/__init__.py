"""Optical self-tests: lamps and heaters in view, which devices must see when they are switched on."""
