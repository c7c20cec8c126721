"""`embereye explain`: why something is as it is."""
