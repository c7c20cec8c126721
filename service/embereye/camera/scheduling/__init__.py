"""Which frame is analysed next, which is shed, and which is left with its sender."""
