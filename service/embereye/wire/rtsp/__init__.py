"""RTSP (RFC 2326) as a client of cameras speaks it."""
