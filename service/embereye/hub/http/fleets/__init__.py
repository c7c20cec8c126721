"""Fleets, their devices, actuators and heartbeats, as lists that many browsers ask for every second."""
