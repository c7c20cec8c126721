"""How much a fleet takes, on paper: measured costs, and the scaling law."""
