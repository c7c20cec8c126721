"""Detection: words, pictures and readings in, signs of fire out. Pure, with time as an argument."""
