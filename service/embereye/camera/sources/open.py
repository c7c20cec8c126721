"""From a declared source to what can be played."""

from embereye.camera.sources.credentials import credentials_of
from embereye.camera.sources.declared import parse_source
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtp.source import RtpSource
from embereye.camera.sources.rtsp.source import RtspSource
from embereye.camera.sources.source import Source
from embereye.camera.sources.video.source import FileSource


def open_source(
    source: str, dials: DialLimiter, poller: SocketPoller, *, secret: str = "", frame_rate: float = 0.0
) -> Source | None:
    """The source that `source` declares, not yet opened; None: its frames are pushed. SourceError: not possible.

    `dials` limits how many sources are being connected at the same time; `poller` polls the sockets of all of them;
    `secret` names the Secret with the camera's user and password; `frame_rate` is how many frames/s a camera is asked
    for that has to be asked for every picture, 0: any.
    """
    what = parse_source(source)
    credentials = credentials_of(what, secret)
    match what.kind:
        case "push":
            return None
        case "rtp":
            return RtpSource(what, poller)
        case "file":
            return FileSource(what.address, dials.starts)
        case "rtsp":
            return RtspSource(what, credentials, dials, poller)
        case "onvif":
            from embereye.camera.sources.onvif import OnvifSource  # aiohttp takes 8 MB where nobody needs it

            return OnvifSource(what, credentials, dials, frame_rate)
        case _:
            from embereye.camera.sources.http.source import HttpSource

            return HttpSource(what, credentials, dials, poller)
