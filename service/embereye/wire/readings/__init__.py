"""Readings of devices that people can buy: quantities, and how to find them in a message."""
