"""TLS for those who are none of our own processes, as a server and as a client."""
