"""The camera shard: sources, mailboxes, scheduling, decoding, analysis and clips."""
