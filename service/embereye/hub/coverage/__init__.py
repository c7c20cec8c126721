"""What is known of who is watched: rosters, shards' reports, ledgers."""
