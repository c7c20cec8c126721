"""The devices' coverage: rosters, shards' reports, ledgers."""
