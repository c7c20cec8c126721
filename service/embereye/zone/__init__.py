"""Evidence to alarm state. Pure."""
