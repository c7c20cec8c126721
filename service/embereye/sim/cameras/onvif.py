"""Simulate cameras that list their profiles over ONVIF and answer WS-Discovery.

A small part of the specification, written from its WSDL, for tests and demonstrations: Device, Media and Media2 with
WS-UsernameToken. No request configures anything.
"""

import asyncio
import base64
import hashlib
import logging
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from xml.sax.saxutils import escape

from aiohttp import web

from embereye.process.http.server import bound_port, serve_http
from embereye.process.lifecycle import UserError
from embereye.wire.onvif import soap
from embereye.wire.onvif.device import MEDIA, MEDIA2
from embereye.wire.onvif.discovery import GROUP_V4, PORT
from embereye.wire.onvif.media import Profile
from embereye.wire.onvif.xml import Element, XmlError, parse

logger = logging.getLogger(__name__)

SKEW = timedelta(seconds=10)  # largest difference between a token's time and the camera's clock
MAX_REQUEST = 64 * 1024  # bytes
_DEVICE = "http://www.onvif.org/ver10/device/wsdl"
_NAMES = (
    'xmlns:s="http://www.w3.org/2003/05/soap-envelope" xmlns:tt="http://www.onvif.org/ver10/schema" '
    f'xmlns:tds="{_DEVICE}" xmlns:trt="{MEDIA}" xmlns:tr2="{MEDIA2}" xmlns:ter="http://www.onvif.org/ver10/error"'
)
_OPEN = {"GetSystemDateAndTime", "GetCapabilities", "GetServices"}  # allowed without a token


class RefusalError(Exception):
    """A request that a camera refuses; `subcode` goes into the fault."""

    def __init__(self, subcode: str, reason: str) -> None:
        super().__init__(reason)
        self.subcode = subcode


class OnvifCameras:
    """Answers for `cameras`: camera name → its profiles, each with its RTSP address.

    With a `user`, all requests but a few need a token. `media2`: Media2 is served. The cameras' clock is `ahead` of
    ours. They name `host`, if it is not empty, as their address.
    """

    def __init__(
        self, cameras: Mapping[str, Sequence[tuple[Profile, str]]], *, user: str = "", password: str = "",
        media2: bool = True, ahead: timedelta = timedelta(), host: str = "",
    ) -> None:  # fmt: skip
        self.cameras = cameras
        self.requests: list[str] = []  # names of the answered requests, with the service
        self.port = 0
        self._user, self._password = user, password
        self._media2 = media2
        self._ahead = ahead
        self._host = host

    def application(self) -> web.Application:
        """Create an application that serves each camera's device service at /CAMERA."""
        app = web.Application(client_max_size=MAX_REQUEST)
        app.router.add_post("/{camera}", self._serve)
        app.router.add_post("/{camera}/{service:media2?}", self._serve)
        return app

    async def _serve(self, request: web.Request) -> web.Response:
        camera = request.match_info["camera"]
        try:
            envelope = parse(await request.read())
            body = envelope.first("Body")
            if body is None or not body.children or camera not in self.cameras:
                raise RefusalError("WellFormed", "not a request to a camera")
            request_body = body.children[0]
            if self._user and request_body.name not in _OPEN:
                self._authenticate(envelope)
            service = request.match_info.get("service", "")
            self.requests.append(f"{service}:{request_body.name}" if service else request_body.name)
            origin = f"http://{self._host or request.host}/{camera}"
            answer = self._answer(request_body, service == "media2", origin, self.cameras[camera])
        except (RefusalError, XmlError) as refused:
            subcode = refused.subcode if isinstance(refused, RefusalError) else "WellFormed"
            code = (
                f"<s:Code><s:Value>s:Sender</s:Value><s:Subcode><s:Value>ter:{subcode}</s:Value></s:Subcode></s:Code>"
            )
            reason = f'<s:Reason><s:Text xml:lang="en">{escape(str(refused))}</s:Text></s:Reason>'
            return _enveloped(f"<s:Fault>{code}{reason}</s:Fault>", 400)
        return _enveloped(answer, 200)

    def _authenticate(self, envelope: Element) -> None:
        token = envelope.first("Header", "UsernameToken")
        if token is None:
            raise RefusalError("NotAuthorized", "Sender not Authorized")
        try:
            nonce, digest = (base64.b64decode(token.value(name)) for name in ("Nonce", "Password"))
            then = datetime.strptime(token.value("Created"), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError as error:
            raise RefusalError("NotAuthorized", "Sender not Authorized") from error
        text = nonce + token.value("Created").encode() + self._password.encode()
        expected = hashlib.sha1(text, usedforsecurity=False).digest()
        fresh = abs(datetime.now(UTC) + self._ahead - then) < SKEW
        if token.value("Username") != self._user or digest != expected or not fresh:
            raise RefusalError("NotAuthorized", "Sender not Authorized")

    def _answer(self, request_body: Element, media2: bool, origin: str, profiles: Sequence[tuple[Profile, str]]) -> str:
        name = request_body.name
        prefix = "tr2" if media2 else "trt"
        match name:
            case "GetSystemDateAndTime":
                return _clock(datetime.now(UTC) + self._ahead)
            case "GetServices":
                return _services(origin, self._media2)
            case "GetCapabilities":
                media = f"<tt:Media><tt:XAddr>{origin}/media</tt:XAddr><tt:StreamingCapabilities/></tt:Media>"
                return f"<tds:{name}Response><tds:Capabilities>{media}</tds:Capabilities></tds:{name}Response>"
            case "GetDeviceInformation":
                serial = origin.rpartition("/")[2]
                values = {"Manufacturer": "EmberEye", "Model": "simulated", "FirmwareVersion": "1"}
                values |= {"SerialNumber": serial, "HardwareId": "1"}
                inner = "".join(f"<tds:{key}>{escape(value)}</tds:{key}>" for key, value in values.items())
                return f"<tds:{name}Response>{inner}</tds:{name}Response>"
            case "GetProfiles":
                # Media does not support H.265.
                shown = [_profile(profile, media2) for profile, _ in profiles if media2 or profile.encoding != "H265"]
                return f"<{prefix}:{name}Response>{''.join(shown)}</{prefix}:{name}Response>"
            case "GetStreamUri":
                wanted = request_body.value("ProfileToken")
                uri = escape(next((uri for profile, uri in profiles if profile.token == wanted), ""))
                if not uri:
                    raise RefusalError("NoProfile", "no such profile")
                inner = f"<tr2:Uri>{uri}</tr2:Uri>" if media2 else f"<trt:MediaUri>{_media_uri(uri)}</trt:MediaUri>"
                return f"<{prefix}:{name}Response>{inner}</{prefix}:{name}Response>"
        raise RefusalError("ActionNotSupported", f"{name} is not supported")


def _enveloped(body: str, status: int) -> web.Response:
    text = f'<?xml version="1.0" encoding="UTF-8"?><s:Envelope {_NAMES}><s:Body>{body}</s:Body></s:Envelope>'
    return web.Response(text=text, status=status, content_type="application/soap+xml", charset="utf-8")


def _media_uri(uri: str) -> str:
    """Mark a stream's address as valid for one use: clients must request it again."""
    rest = "<tt:InvalidAfterConnect>false</tt:InvalidAfterConnect><tt:InvalidAfterReboot>false</tt:InvalidAfterReboot>"
    return f"<tt:Uri>{uri}</tt:Uri>{rest}<tt:Timeout>PT0S</tt:Timeout>"


def _clock(now: datetime) -> str:
    time = f"<tt:Hour>{now.hour}</tt:Hour><tt:Minute>{now.minute}</tt:Minute><tt:Second>{now.second}</tt:Second>"
    date = f"<tt:Year>{now.year}</tt:Year><tt:Month>{now.month}</tt:Month><tt:Day>{now.day}</tt:Day>"
    kind = "<tt:DateTimeType>NTP</tt:DateTimeType><tt:DaylightSavings>false</tt:DaylightSavings>"
    utc = f"<tt:UTCDateTime><tt:Time>{time}</tt:Time><tt:Date>{date}</tt:Date></tt:UTCDateTime>"
    inner = f"<tds:SystemDateAndTime>{kind}{utc}</tds:SystemDateAndTime>"
    return f"<tds:GetSystemDateAndTimeResponse>{inner}</tds:GetSystemDateAndTimeResponse>"


def _services(origin: str, media2: bool) -> str:
    version = "<tds:Version><tt:Major>2</tt:Major><tt:Minor>60</tt:Minor></tds:Version>"
    places = [(_DEVICE, origin), (MEDIA, f"{origin}/media"), *([(MEDIA2, f"{origin}/media2")] if media2 else [])]
    inner = "".join(
        f"<tds:Service><tds:Namespace>{name}</tds:Namespace><tds:XAddr>{place}</tds:XAddr>{version}</tds:Service>"
        for name, place in places
    )
    return f"<tds:GetServicesResponse>{inner}</tds:GetServicesResponse>"


def _profile(profile: Profile, media2: bool) -> str:
    size = f"<tt:Resolution><tt:Width>{profile.width}</tt:Width><tt:Height>{profile.height}</tt:Height></tt:Resolution>"
    bounds = f'<tt:Bounds x="0" y="0" width="{profile.width}" height="{profile.height}"/>'
    source = (
        "<tt:Name>source</tt:Name><tt:UseCount>1</tt:UseCount>"
        f"<tt:SourceToken>{profile.source}</tt:SourceToken>{bounds}"
    )
    token, name = escape(profile.token), f"<tt:Name>{escape(profile.name)}</tt:Name>"
    address = "<tt:Address><tt:Type>IPv4</tt:Type><tt:IPv4Address>0.0.0.0</tt:IPv4Address></tt:Address>"
    multicast = f"{address}<tt:Port>0</tt:Port><tt:TTL>1</tt:TTL><tt:AutoStart>false</tt:AutoStart>"
    first = f"<tt:UseCount>1</tt:UseCount><tt:Encoding>{profile.encoding}</tt:Encoding>{size}"
    if media2:
        limit = f"<tt:BitrateLimit>{profile.bit_rate}</tt:BitrateLimit>"
        rate = f"<tt:FrameRateLimit>{profile.rate:g}</tt:FrameRateLimit>{limit}"
        encoder = f"{name}{first}<tt:RateControl>{rate}</tt:RateControl><tt:Quality>5</tt:Quality>"
        inner = (
            f'<tr2:VideoSource token="{profile.source}">{source}</tr2:VideoSource>'
            f'<tr2:VideoEncoder token="encoder-{token}">{encoder}</tr2:VideoEncoder>'
        )
        name = f"<tr2:Name>{escape(profile.name)}</tr2:Name>"
        configured = f"<tr2:Configurations>{inner}</tr2:Configurations>"
        return f'<tr2:Profiles token="{token}" fixed="true">{name}{configured}</tr2:Profiles>'
    rate = (
        f"<tt:FrameRateLimit>{profile.rate:.0f}</tt:FrameRateLimit><tt:EncodingInterval>1</tt:EncodingInterval>"
        f"<tt:BitrateLimit>{profile.bit_rate}</tt:BitrateLimit>"
    )
    multicast = f"<tt:Multicast>{multicast}</tt:Multicast>"
    encoder = f"{name}{first}<tt:Quality>5</tt:Quality><tt:RateControl>{rate}</tt:RateControl>{multicast}"
    inner = (
        f'<tt:VideoSourceConfiguration token="{profile.source}">{source}</tt:VideoSourceConfiguration>'
        f'<tt:VideoEncoderConfiguration token="encoder-{token}">{encoder}<tt:SessionTimeout>PT60S</tt:SessionTimeout>'
        "</tt:VideoEncoderConfiguration>"
    )
    return f'<trt:Profiles token="{token}" fixed="true">{name}{inner}</trt:Profiles>'


async def serve_onvif(
    cameras: OnvifCameras, host: str, port: int, stop: asyncio.Event, ready: Callable[[int], None] | None = None
) -> None:
    """Serve `cameras` at http://`host`:`port`/CAMERA until `stop`, and answer probes.

    Call `ready` with the port once it listens.
    """
    runner = await serve_http(cameras.application(), host, port)
    try:
        cameras.port = bound_port(runner)
        with _group(host) as receiver:
            loop = asyncio.get_running_loop()
            loop.add_reader(receiver, _answer_probe, receiver, cameras, host)
            if ready:
                ready(cameras.port)
            try:
                await stop.wait()
            finally:
                loop.remove_reader(receiver)
    finally:
        await runner.cleanup()


def _group(host: str) -> socket.socket:
    """Open a socket that receives the probes of `host`'s network."""
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        receiver.bind((GROUP_V4, PORT))
        membership = socket.inet_aton(GROUP_V4) + socket.inet_aton(host)
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(host))
    except OSError as error:
        receiver.close()
        raise UserError(f"cannot listen for probes on {host}, port {PORT}: {error.strerror or error}") from error
    return receiver


def _answer_probe(receiver: socket.socket, cameras: OnvifCameras, host: str) -> None:
    try:
        data, sender = receiver.recvfrom(MAX_REQUEST)
        request = parse(data)
    except (OSError, XmlError):
        return
    if request.first("Body", "Probe") is None:
        return
    related = request.value("MessageID")
    for camera in cameras.cameras:
        receiver.sendto(probe_matches(camera, f"http://{host}:{cameras.port}/{camera}", related), sender)


def probe_matches(camera: str, address: str, related: str) -> bytes:
    """The answer of `camera`, whose device service is at `address`, to the probe `related`."""
    names = 'xmlns:a="http://schemas.xmlsoap.org/ws/2004/08/addressing"'
    body = (
        f'<d:ProbeMatches xmlns:d="http://schemas.xmlsoap.org/ws/2005/04/discovery" {names}><d:ProbeMatch>'
        f"<a:EndpointReference><a:Address>urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, address)}</a:Address>"
        '</a:EndpointReference><d:Types xmlns:n="http://www.onvif.org/ver10/network/wsdl">n:NetworkVideoTransmitter'
        f"</d:Types><d:Scopes>onvif://www.onvif.org/name/{escape(camera)} onvif://www.onvif.org/hardware/simulated"
        f"</d:Scopes><d:XAddrs>{address}</d:XAddrs><d:MetadataVersion>1</d:MetadataVersion></d:ProbeMatch>"
        "</d:ProbeMatches>"
    )
    action = "http://schemas.xmlsoap.org/ws/2005/04/discovery/ProbeMatches"
    header = (
        f"<a:MessageID {names}>urn:uuid:{uuid.uuid4()}</a:MessageID>"
        f"<a:RelatesTo {names}>{escape(related)}</a:RelatesTo>"
        f"<a:To {names}>http://schemas.xmlsoap.org/ws/2004/08/addressing/role/anonymous</a:To>"
        f"<a:Action {names}>{action}</a:Action>"
    )
    return soap.envelope(body, header)
