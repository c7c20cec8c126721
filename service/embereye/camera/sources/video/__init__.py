"""Video files, H.264 and H.265, played by a process of its own."""
