"""Real servers for tests on loopback, and certificates for the programs under test."""
