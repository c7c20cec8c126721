"""Margins that shards measured, stored so that people can ask why there was no alarm."""
