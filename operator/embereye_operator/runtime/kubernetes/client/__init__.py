"""Access to an API server: its kinds, a packed cache of its objects, its requests to slow down."""
