"""`embereye simulate`: devices over their real protocols."""
