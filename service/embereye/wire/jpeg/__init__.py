"""Read and write a JPEG's header, tables and restart intervals without decoding a pixel."""
