"""HTTP as cameras speak it: multipart streams, response heads, authentication."""
