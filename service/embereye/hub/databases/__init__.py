"""The databases that the hub's store can keep its rows in."""
