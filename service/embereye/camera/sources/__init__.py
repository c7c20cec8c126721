"""Where a camera's frames come from: one module per kind of source."""
