"""RTSP (RFC 2326) for a client of cameras."""
