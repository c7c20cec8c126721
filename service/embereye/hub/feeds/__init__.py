"""Alarm events for whoever asks: the feed, what of it somebody wants, and that under a name."""
