"""Attacks on real processes, which must serve honest devices as usual in the meantime."""
