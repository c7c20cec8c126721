"""Decoding of compressed frames to small images, in separate processes."""
