"""The gRPC services of a sensor shard: Ingest for devices that send batches, and commands to text devices."""
