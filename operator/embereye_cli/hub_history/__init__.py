"""What a hub has stored, copied from one place to another."""
