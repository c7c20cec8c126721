"""A fleet's own network: loaded, reloaded when its file changes, and run for each camera at a limited rate."""
