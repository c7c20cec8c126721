"""Frames that senders push over gRPC."""
