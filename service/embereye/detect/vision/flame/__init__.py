"""Whether something that moves and glows is a flame, and what speaks for and against it."""
