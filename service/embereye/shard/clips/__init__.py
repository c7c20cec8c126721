"""What is kept around an alarm, on a shard's disk until the hub has it."""
