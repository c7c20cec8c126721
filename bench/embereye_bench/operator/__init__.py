"""`embereye bench operator`: measures the operator against a real API server, and its scaling on a simulated day."""
