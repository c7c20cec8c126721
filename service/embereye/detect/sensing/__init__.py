"""Detection from smoke, flame and gas readings, and checks that their sensors work."""
