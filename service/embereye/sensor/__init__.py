"""The sensor shard: sessions of text devices, gRPC streams, the tick that analyses, and each device's state."""
