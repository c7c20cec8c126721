"""Whether a camera's pictures are fit to see a fire in, and whether it still looks the same way."""
