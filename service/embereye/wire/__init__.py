"""Convert bytes to messages and back, without I/O: a parser accepts bytes and buffers incomplete input."""
