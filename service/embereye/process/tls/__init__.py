"""TLS with devices, people and other programs, as a server and as a client."""
