"""Bytes to messages and back, without I/O: a parser takes bytes and keeps what is left."""
