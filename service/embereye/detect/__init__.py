"""Words, pictures and readings in, signs of fire out: pure, with time as an argument."""
