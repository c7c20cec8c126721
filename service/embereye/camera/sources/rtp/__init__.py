"""RTP/JPEG that cameras send to ports of ours."""
