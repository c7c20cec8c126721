"""Read media profiles and the addresses of their streams (ONVIF Media and Media2 Service Specifications)."""

from dataclasses import dataclass
from xml.sax.saxutils import escape

from embereye.wire.onvif.device import MEDIA, MEDIA2
from embereye.wire.onvif.xml import Element
from embereye.wire.rtsp.messages import printable

MOST_PROFILES = 256  # profiles read from one device; a recorder has two or three for each channel
MAX_TOKEN = 256  # characters of a token or a name; ONVIF allows 64
_SCHEMA = "http://www.onvif.org/ver10/schema"
_ENCODINGS = {"H264": "H264", "H265": "H265", "HEVC": "H265", "JPEG": "JPEG"}


@dataclass(frozen=True)
class Profile:
    """One stream that a device offers; 0 or empty: unknown."""

    token: str
    name: str
    encoding: str  # "H264", "H265", "JPEG", another in the device's spelling; empty: it has no encoder
    width: int = 0  # pixels
    height: int = 0  # pixels
    rate: float = 0.0  # frames/s at most
    bit_rate: int = 0  # kbit/s at most
    source: str = ""  # token of the video source shown; a recorder has several

    @property
    def side(self) -> int:
        """The longer side, pixels."""
        return max(self.width, self.height)

    def __str__(self) -> str:
        """Return the name, encoding, size and rate, for people."""
        size = f" {self.width}x{self.height}" if self.side else ""
        rate = f", {self.rate:g} frames/s" if self.rate else ""
        return f'"{printable(self.name)}" ({printable(self.encoding) or "no video"}{size}{rate})'


def profiles_request(service: str) -> str:
    """The body that requests all profiles with their configurations; `service` is MEDIA or MEDIA2."""
    if service == MEDIA2:
        return f'<GetProfiles xmlns="{MEDIA2}"><Type>VideoSource</Type><Type>VideoEncoder</Type></GetProfiles>'
    return f'<GetProfiles xmlns="{MEDIA}"/>'


def stream_request(service: str, profile: str) -> str:
    """The body that requests the RTSP address of the profile with the token `profile`."""
    token = f"<ProfileToken>{escape(profile)}</ProfileToken>"
    if service == MEDIA2:
        return f'<GetStreamUri xmlns="{MEDIA2}"><Protocol>RTSP</Protocol>{token}</GetStreamUri>'
    setup = (
        f'<StreamSetup><Stream xmlns="{_SCHEMA}">RTP-Unicast</Stream>'
        f'<Transport xmlns="{_SCHEMA}"><Protocol>RTSP</Protocol></Transport></StreamSetup>'
    )
    return f'<GetStreamUri xmlns="{MEDIA}">{setup}{token}</GetStreamUri>'


def snapshot_request(service: str, profile: str) -> str:
    """The body that requests the snapshot address of the profile with the token `profile`."""
    return f'<GetSnapshotUri xmlns="{service}"><ProfileToken>{escape(profile)}</ProfileToken></GetSnapshotUri>'


def read_profiles(answer: Element) -> list[Profile]:
    """The profiles in an answer of either service, in the device's order, at most MOST_PROFILES."""
    profiles: list[Profile] = []
    for element in answer.all("Profiles"):
        token = element.attributes.get("token", "")
        if not 0 < len(token) <= MAX_TOKEN:
            continue
        encoder = element.first("VideoEncoderConfiguration") or element.first("VideoEncoder") or Element("")
        source = element.first("VideoSourceConfiguration") or element.first("VideoSource") or Element("")
        encoding = encoder.value("Encoding")[:20]
        profiles.append(
            Profile(
                token,
                next((child.text[:MAX_TOKEN] for child in element.children if child.name == "Name"), "") or token,
                _ENCODINGS.get(encoding.upper(), encoding),
                _number(encoder.value("Resolution", "Width")),
                _number(encoder.value("Resolution", "Height")),
                float(_number(encoder.value("RateControl", "FrameRateLimit"))),
                _number(encoder.value("RateControl", "BitrateLimit")),
                source.value("SourceToken")[:MAX_TOKEN],
            )
        )
        if len(profiles) == MOST_PROFILES:
            break
    return profiles


def read_uri(answer: Element) -> str:
    """The address of a stream or snapshot in an answer; '' if there is none."""
    return answer.value("Uri")


def _number(text: str) -> int:
    """`text` as a whole number, which cameras also write as 25.000; 0 if it is not plausible."""
    whole = text.partition(".")[0]
    return int(whole) if whole.isascii() and whole.isdigit() and len(whole) <= 8 else 0
