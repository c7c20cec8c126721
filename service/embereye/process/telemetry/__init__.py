"""What a process tells of itself: logs, metrics, traces."""
