"""Evidence by way of a stream in NATS JetStream, which acknowledges it whether or not the database can be written."""
