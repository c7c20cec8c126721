"""`embereye bench operator`: the operator against a real API server, and its scaling law over a simulated day."""
