"""Candidates: other settings of detection that judge a shard's data silently."""
