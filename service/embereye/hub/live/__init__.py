"""Live pictures of cameras, from their shards to people who look at them."""
