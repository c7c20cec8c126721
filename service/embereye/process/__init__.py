"""Shared parts of every EmberEye process: start and stop, gRPC server, metrics page, retries."""
