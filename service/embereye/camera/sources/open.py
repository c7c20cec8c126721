"""From a declared source to what can be played."""

from embereye.camera.sources.credentials import credentials_of
from embereye.camera.sources.declared import SourceError, parse_source, redact
from embereye.camera.sources.dials import DialLimiter
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
    """The source that `source` declares, not yet opened; None: its frames are pushed. SourceError: not possible.

    `dials` limits how many sources are being connected at the same time; `poller` polls the sockets of all of them;
    `secret` names the Secret with the camera's user and password; `wanted` is which of its streams to play, and how
    often to ask where every picture has to be asked for.
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
        case "device":
            return DeviceSource(what.address, dials.starts)
        case "rtsp":
            return RtspSource(what, credentials, dials, poller, formats=VIDEO if wanted.recorded else FORMATS)
        case "onvif":
            from embereye.camera.sources.onvif.source import OnvifSource  # aiohttp takes 8 MB where nobody needs it

            return OnvifSource(what, credentials, dials, poller, wanted)
        case _:
            from embereye.camera.sources.http.source import HttpSource

            return HttpSource(what, credentials, dials, poller)


def open_watched(device: Device, dials: DialLimiter, poller: SocketPoller) -> Source | None:
    """The stream of `device` that is looked at; otherwise as `open_source`."""
    address, profile = _named_stream(device.source, device.detect_stream)
    wanted = Wanted(profile, rate=device.fps_target, least_rate=device.fps_min)
    return open_source(address, dials, poller, secret=device.credentials, wanted=wanted)


def open_recorded(device: Device, dials: DialLimiter, poller: SocketPoller) -> Source | None:
    """The stream of `device` that its clips are kept of; None: the one that is looked at. SourceError: not possible."""
    if not device.record_stream:
        return None
    address, profile = _named_stream(device.source, device.record_stream)
    if parse_source(address).kind not in {"rtsp", "onvif"}:
        raise SourceError(f'streams.record "{redact(address)}" is no RTSP address: no other stream is kept as it comes')
    wanted = Wanted(profile, recorded=True)
    return open_source(address, dials, poller, secret=device.credentials, wanted=wanted)


def _named_stream(source: str, named: str) -> tuple[str, str]:
    """The address and the profile that `named` stands for: a URL of its own, or a profile of the ONVIF `source`."""
    if "://" in named:
        return named, ""
    if named and not source.lower().startswith("onvif:"):
        raise SourceError(
            f'"{printable(named)}" is a profile, and only a source onvif://HOST has profiles: write a URL'
        )
    return source, named
