"""Clocks, waits and retries, and the processor time that threads take."""
