"""The hub's storage: its database rows, their only writer, its history, its clips, and a copy of all of it."""
