"""Sources of a camera's frames, one module per kind."""
