"""Scenes for simulated devices: rooms, fires, lookalikes."""
