"""Convert pictures to RTP packets and back: RTP and RTCP (RFC 3550), JPEG (RFC 2435), H.264 and H.265."""
