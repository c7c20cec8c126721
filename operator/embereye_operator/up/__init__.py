"""`embereye up`: runs fleets on this machine, and shows their state."""
