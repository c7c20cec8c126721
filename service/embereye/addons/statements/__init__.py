"""Statements of watch: a signed record of each day, in a chain: minutes watched, gaps, canaries, routes, alarms."""
