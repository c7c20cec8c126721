"""Lockstep control of actuators, the associations that carry it, and Echo; with clients in Python and Go."""
