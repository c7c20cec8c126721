"""Which shards, and which fleets, may take a changed pod now."""
