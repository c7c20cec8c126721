"""Outputs to the building by Modbus TCP: zones' states as coils and registers of fire panels, relays and PLCs."""
