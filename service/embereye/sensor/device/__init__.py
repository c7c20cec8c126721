"""One sensor as its shard knows it: what arrives from it, what is analysed of that, what others are told."""
