"""Video files and local cameras, played by a separate process."""
