"""One sensor in its shard: its arrivals, the analysis of its readings and frames, and its reported status."""
