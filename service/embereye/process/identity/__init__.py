"""Who our own processes are to each other: names, certificates, and which process may make which call."""
