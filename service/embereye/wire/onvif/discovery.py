"""Find devices that send video by WS-Discovery (OASIS, April 2005, as ONVIF uses it)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from embereye.wire.onvif.soap import envelope
from embereye.wire.onvif.xml import Element, XmlError, parse

GROUP_V4, PORT = "239.255.255.250", 3702
MAX_ANSWER = 65_535  # bytes of a datagram
MOST_MATCHES = 64  # devices in one answer; normally each device answers for itself
MOST_ADDRESSES = 16  # of one device
_DISCOVERY = "http://schemas.xmlsoap.org/ws/2005/04/discovery"
_ADDRESSING = "http://schemas.xmlsoap.org/ws/2004/08/addressing"
_NETWORK = "http://www.onvif.org/ver10/network/wsdl"
_SCOPE = re.compile(r"onvif://www\.onvif\.org/(name|hardware|location)/(.{1,200})", re.IGNORECASE)


@dataclass(frozen=True)
class Match:
    """A device that answered a probe."""

    id: str  # permanent, mostly urn:uuid:…
    addresses: Sequence[str]  # of its device service, as the device names them
    name: str = ""
    hardware: str = ""
    location: str = ""


def probe(message: str) -> bytes:
    """A probe for devices that send video; `message` is a new UUID, which answers repeat."""
    header = (
        f'<a:MessageID xmlns:a="{_ADDRESSING}">urn:uuid:{message}</a:MessageID>'
        f'<a:To xmlns:a="{_ADDRESSING}">urn:schemas-xmlsoap-org:ws:2005:04:discovery</a:To>'
        f'<a:Action xmlns:a="{_ADDRESSING}">{_DISCOVERY}/Probe</a:Action>'
    )
    types = f'<d:Types xmlns:n="{_NETWORK}">n:NetworkVideoTransmitter</d:Types>'
    return envelope(f'<d:Probe xmlns:d="{_DISCOVERY}">{types}</d:Probe>', header)


def read_matches(data: bytes, message: str) -> list[Match]:
    """The devices in an answer to the probe `message`; empty if it answers another probe or is not XML.

    Devices without an HTTP address are left out.
    """
    try:
        answer = parse(data[:MAX_ANSWER])
    except XmlError:
        return []
    if answer.value("RelatesTo").lower().removeprefix("urn:").removeprefix("uuid:") != message.lower():
        return []
    matches = []
    for element in answer.all("ProbeMatch"):
        addresses = [text for text in element.value("XAddrs").split()[:MOST_ADDRESSES] if _usable(text)]
        if addresses:
            scopes = _scopes(element)
            matches.append(Match(element.value("EndpointReference", "Address")[:200], addresses, **scopes))
        if len(matches) == MOST_MATCHES:
            break
    return matches


def _usable(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _scopes(element: Element) -> dict[str, str]:
    scopes: dict[str, str] = {}
    for word in element.value("Scopes").split()[:100]:
        if scope := _SCOPE.fullmatch(word):
            scopes.setdefault(scope[1].lower(), unquote(scope[2]).replace("/", " "))
    return scopes
