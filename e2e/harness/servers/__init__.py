"""Real servers of the tests' own on loopback, and certificates for whoever is to be tested."""
