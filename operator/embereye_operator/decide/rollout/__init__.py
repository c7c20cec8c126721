"""Roll-outs: the shards and fleets that may replace their pods now."""
