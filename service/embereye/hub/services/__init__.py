"""The hub's gRPC services: each checks a request and calls the part of the hub that serves it."""
