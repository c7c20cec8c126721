"""What the hub keeps: its rows, their only writer, its history, its clips, and a copy of all of it."""
