"""Serve HTTP: bounded connections, the hub's server, small pages without a framework, tokens."""
