"""The monitoring of a running system: its metrics, the alerts and dashboards on them, and their pages."""
