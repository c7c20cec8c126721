"""The description of the hub's HTTP interface."""
