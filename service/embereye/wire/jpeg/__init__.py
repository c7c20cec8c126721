"""What is inside a JPEG, read and written without decoding a pixel: its header, its tables, its restart intervals."""
