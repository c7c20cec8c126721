"""The few SOAP messages that lead to an ONVIF camera's snapshot (ONVIF Core and Media Service Specifications)."""

import base64
import hashlib
import re
from datetime import UTC, datetime, timedelta
from xml.sax.saxutils import escape, unescape

_DEVICE = "http://www.onvif.org/ver10/device/wsdl"
_MEDIA = "http://www.onvif.org/ver10/media/wsdl"
_SECURITY = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-"
_TOKEN = f"{_SECURITY}username-token-profile-1.0#PasswordDigest"
_BASE64 = f"{_SECURITY}soap-message-security-1.0#Base64Binary"
CLOCK = f'<GetSystemDateAndTime xmlns="{_DEVICE}"/>'
CAPABILITIES = f'<GetCapabilities xmlns="{_DEVICE}"><Category>Media</Category></GetCapabilities>'
PROFILES = f'<GetProfiles xmlns="{_MEDIA}"/>'
# The answers are searched, not parsed as XML: an entity in them expands to nothing, and namespaces are as they like.
_XADDR = re.compile(r"<(?:\w+:)?Media>.*?<(?:\w+:)?XAddr>\s*([^<]{1,500}?)\s*</", re.DOTALL)
_PROFILE = re.compile(r"<(?:\w+:)?Profiles\b[^>]{0,500}?\btoken=\"([^\"]{1,200})\"")
_URI = re.compile(r"<(?:\w+:)?Uri>\s*([^<]{1,1000}?)\s*</")
_UTC = re.compile(r"<(?:\w+:)?UTCDateTime>(.{0,1000}?)</(?:\w+:)?UTCDateTime>", re.DOTALL)
_REASON = re.compile(r"<(?:\w+:)?(?:Text|faultstring)\b[^>]{0,200}>\s*([^<]{1,200}?)\s*</")


def snapshot_request(profile: str) -> str:
    """The body that asks for the snapshot URI of `profile`."""
    token = f"<ProfileToken>{escape(profile)}</ProfileToken>"
    return f'<GetSnapshotUri xmlns="{_MEDIA}">{token}</GetSnapshotUri>'


def envelope(body: str, user: str = "", password: str = "", nonce: bytes = b"", created: str = "") -> bytes:
    """A whole request; `created` is the present time by the camera's clock (ISO 8601, UTC)."""
    header = ""
    if user:
        digest = hashlib.sha1(nonce + created.encode() + password.encode(), usedforsecurity=False).digest()
        header = (
            f'<s:Header><Security s:mustUnderstand="1" xmlns="{_SECURITY}wssecurity-secext-1.0.xsd"><UsernameToken>'
            f"<Username>{escape(user)}</Username>"
            f'<Password Type="{_TOKEN}">{base64.b64encode(digest).decode()}</Password>'
            f'<Nonce EncodingType="{_BASE64}">{base64.b64encode(nonce).decode()}</Nonce>'
            f'<Created xmlns="{_SECURITY}wssecurity-utility-1.0.xsd">{created}</Created>'
            "</UsernameToken></Security></s:Header>"
        )
    start = '<?xml version="1.0" encoding="utf-8"?><s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope">'
    return f"{start}{header}<s:Body>{body}</s:Body></s:Envelope>".encode()


def media_address(answer: str) -> str:
    """Where the media service is, or ''."""
    return _found(_XADDR, answer)


def first_profile(answer: str) -> str:
    """The first profile's token, or ''."""
    return _found(_PROFILE, answer)


def snapshot_address(answer: str) -> str:
    """Where the snapshot is, or ''."""
    return _found(_URI, answer)


def fault(answer: str) -> str:
    """Why the camera refuses a request, or ''."""
    return _found(_REASON, answer)


def camera_clock(answer: str) -> datetime | None:
    """The camera's clock; None where the answer does not hold it."""
    utc = _UTC.search(answer)
    if not utc:
        return None
    names = ("Year", "Month", "Day", "Hour", "Minute", "Second")
    found = [re.search(rf"<(?:\w+:)?{name}>\s*(\d{{1,4}})\s*<", utc[1]) for name in names]
    numbers = [int(value[1]) for value in found if value]
    try:
        year, month, day, hour, minute, second = numbers
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None


def created(now: datetime, ahead: timedelta) -> str:
    """`now` by a clock that is `ahead` of ours."""
    return (now + ahead).strftime("%Y-%m-%dT%H:%M:%SZ")


def _found(pattern: "re.Pattern[str]", answer: str) -> str:
    found = pattern.search(answer)
    return unescape(found[1]) if found else ""
