"""Cameras that answer a GET with MJPEG."""
