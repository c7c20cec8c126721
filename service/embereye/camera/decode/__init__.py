"""Turns compressed frames into small images, in processes of their own."""
