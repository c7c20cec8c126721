"""The camera shard: sources, mailboxes, scheduler, workers."""
