"""What a sensor shard serves by gRPC: Ingest for devices that send batches, and commands to text devices."""
