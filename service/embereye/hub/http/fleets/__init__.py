"""Fleets, devices, actuators and heartbeats, as lists that many browsers request every second."""
