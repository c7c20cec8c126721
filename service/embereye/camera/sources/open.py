"""Creation of the source that a camera declares.

`SourceTasks` opens the stream to watch and a separate one to record. A stream is declared as a URL, or as a profile of
the camera's ONVIF source. Only the object is created here; it connects when it is played. Sources that need aiohttp are
imported only if one is declared.
"""

from urllib.parse import urlsplit

from embereye.camera.sources.credentials import credentials_of
from embereye.camera.sources.declared import SourceError, parse_source, redact
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.logins import Login, Logins
from embereye.camera.sources.onvif.wanted import ANYTHING, VIDEO, Wanted
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtp.source import RtpSource
from embereye.camera.sources.rtsp.session import FORMATS
from embereye.camera.sources.rtsp.source import RtspSource
from embereye.camera.sources.source import Source
from embereye.camera.sources.video.source import DeviceSource, FileSource
from embereye.v1.types_pb2 import Device
from embereye.wire.rtsp.messages import printable


def open_source(
    source: str, dials: DialLimiter, poller: SocketPoller, *, secret: str = "", wanted: Wanted = ANYTHING
) -> Source | None:
    """Create the declared source, not yet opened; None if frames are pushed. Raises SourceError if it is impossible.

    `dials` limits simultaneous connection attempts. `poller` polls the sockets of all sources. `secret` names the
    Secret with the camera's user and password. `wanted` selects the stream to play, and the request rate for sources
    that need a request per picture.
    """
    declared = parse_source(source)
    credentials = credentials_of(declared, secret)
    match declared.kind:
        case "push":
            return None
        case "rtp":
            return RtpSource(declared, poller)
        case "file":
            return FileSource(declared.address, dials.starts)
        case "device":
            return DeviceSource(declared.address, dials.starts)
        case "rtsp":
            return RtspSource(declared, credentials, dials, poller, formats=VIDEO if wanted.recorded else FORMATS)
        case "onvif":
            # aiohttp takes 8 MB, so load it only if needed.
            from embereye.camera.sources.onvif.source import OnvifSource

            return OnvifSource(declared, credentials, dials, poller, wanted)
        case _:
            from embereye.camera.sources.http.source import HttpSource

            return HttpSource(declared, credentials, dials, poller)


def open_watched(device: Device, dials: DialLimiter, poller: SocketPoller) -> Source | None:
    """Create the detect stream of `device`, as `open_source` does."""
    address, profile = _named_stream(device.source, device.detect_stream)
    wanted = Wanted(profile, rate=device.fps_target, least_rate=device.fps_min)
    return open_source(address, dials, poller, secret=device.credentials, wanted=wanted)


def open_recorded(device: Device, dials: DialLimiter, poller: SocketPoller) -> Source | None:
    """Create the record stream of `device`; None if it is the detect stream. Raises SourceError if it is impossible."""
    if not device.record_stream:
        return None
    address, profile = _named_stream(device.source, device.record_stream)
    if parse_source(address).kind not in {"rtsp", "onvif"}:
        raise SourceError(f'streams.record "{redact(address)}": only RTSP and ONVIF streams can be recorded')
    wanted = Wanted(profile, recorded=True)
    return open_source(address, dials, poller, secret=device.credentials, wanted=wanted)


def login_of(logins: Logins, device: Device, named: str) -> Login:
    """Return the log-in of the stream `named` of `device`, which could be opened."""
    declared = parse_source(_named_stream(device.source, named)[0])
    host = urlsplit(declared.address).hostname or "" if "://" in declared.address else ""
    return Login(logins, host, credentials_of(declared, device.credentials if host else ""))


def _named_stream(source: str, named: str) -> tuple[str, str]:
    """Return the address and profile that `named` means: a URL, or a profile of the ONVIF `source`."""
    if "://" in named:
        return named, ""
    if named and not source.lower().startswith("onvif:"):
        raise SourceError(f'"{printable(named)}": only a source onvif://HOST has profiles. Write a URL')
    return source, named
