"""One camera of a shard: its arrivals, the analysis of its frames, and its reports."""
