"""The wire contract, version 1: compiled from `protos/embereye/v1` at build and install time."""
