"""RTP and RTCP (RFC 3550), and JPEG carried by them (RFC 2435): packets to pictures, and pictures to packets."""
