"""mediamtx as the RTSP server of cameras and microphones, whose streams FFmpeg publishes."""

SETTINGS = """\
logLevel: error
rtspAddress: 127.0.0.1:{port}
rtspTransports: [tcp]
rtmp: no
hls: no
webrtc: no
srt: no
{more}paths: {{all_others: {{}}}}
"""


def mediamtx_settings(port: int, more: str = "") -> str:
    """The settings of a server at `port` of this machine that has any path; `more` are further lines."""
    return SETTINGS.format(port=port, more=more)
