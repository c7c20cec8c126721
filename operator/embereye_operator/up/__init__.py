"""`embereye up`: fleets on this machine, and what people see of them while they run."""
