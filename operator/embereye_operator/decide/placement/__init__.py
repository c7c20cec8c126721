"""Which shard owns which device, how it changes hands, and what each shard is told."""
