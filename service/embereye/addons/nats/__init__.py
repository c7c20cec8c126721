"""Evidence through a stream in NATS JetStream, which acknowledges it even while the database cannot be written."""
