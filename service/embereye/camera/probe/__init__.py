"""Try out a camera before a fleet declares it."""
