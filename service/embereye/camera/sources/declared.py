"""What a camera's declared source means, before anything is opened."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit, urlunsplit

from embereye.wire.jpeg.header import MAX_SIDE

SCHEMES = ("rtsp", "rtp", "http", "onvif", "push", "file")
_KINDS = {
    "": "file",
    "file": "file",
    "http": "http",
    "https": "http",
    "push": "push",
    "rtsp": "rtsp",
    "rtsps": "rtsp",
    "rtp": "rtp",
    "onvif": "onvif",
}
UNPROVEN = "tls=unverified"
SNAPSHOTS = "snapshots=only"
DEVICE = re.compile(r"/dev/video\d{1,3}")  # Video4Linux's names
_TRANSPORTS = ("transport=tcp", "transport=udp")
_OURS = {"rtsp": _TRANSPORTS, "rtsps": (*_TRANSPORTS, UNPROVEN), "https": (UNPROVEN,), "onvif": (UNPROVEN, SNAPSHOTS)}
SECRET_LENGTH = 3  # characters; what is shorter in a path is a number of a channel, and everywhere in every text
_URL_REMEDY = "write rtsp://HOST:PORT/PATH, and / ? # @ of a password as %2F %3F %23 %40"
_HOST = re.compile(r"([\w.-]{0,260}|\[[0-9A-Fa-f:.%\w]{2,60}\])(?::\d{1,5})?")
_RTP_OPTIONS = {"width": (1, MAX_SIDE), "height": (1, MAX_SIDE), "payload": (0, 127)}


class SourceError(ValueError):
    """A source that cannot be opened as declared; the text is for people and holds no password."""


@dataclass(frozen=True)
class DeclaredSource:
    """A source, parsed. `address` holds no credentials."""

    kind: str  # "http", "rtsp", "rtp", "onvif", "file", "device" or "push"
    address: str  # URL or path; of "rtp" the address to listen at, empty: any
    user: str = ""
    password: str = ""
    port: int = 0  # of "rtp"
    options: Mapping[str, int] = field(default_factory=dict)  # of "rtp": width, height and payload, where given
    transport: str = "tcp"  # of "rtsp": "tcp" or "udp", what is tried first
    proven: bool = True  # of rtsps, https and onvif: its certificate has to be trusted here
    snapshots: bool = False  # of "onvif": its streams are not to be played
    interface: str = ""  # of "rtp": the address of the network interface that joins a multicast group


def redact(source: str) -> str:
    """`source` for people and logs: of a URL scheme, host and port alone, of a file its path.

    Cameras take user and password in the path ("/user=admin_password=x_channel=1") as well as in the query.
    """
    scheme, mark, rest = source.partition("://")
    if not mark:
        if source.startswith(("/", "./", "../")) or not re.search(r"[@=?]", source):
            return source
        return f"{re.split(r'[/?#@=:]', source, maxsplit=1)[0][:20]}…"  # perhaps an address that lacks its scheme
    authority, slash, behind = _authority(rest)
    if scheme.lower() == "file" and not authority and slash == "/":
        return source
    place = authority.rpartition("@")[2]
    # An "@" further on may be a path's, or that of a password with a slash in it, of which `place` is a part then.
    if "@" in behind or _HOST.fullmatch(place) is None:
        return f"{scheme[:20]}://…"
    return f"{scheme[:20]}://{place}"


def _authority(rest: str) -> tuple[str, str, str]:
    """What is in front of the first of / ? # and backslash, that one, and what is behind it."""
    found = re.search(r"[/?#\\]", rest)
    return (rest[: found.start()], found[0], rest[found.end() :]) if found else (rest, "", "")


def conceal(text: str, source: str) -> str:
    """`text`, which may quote the URL `source`, without what `redact` leaves out of that: a camera may echo it."""
    shown = redact(source)
    if shown == source or not shown:
        return text
    text = text.replace(source, shown)
    rest = source.partition("://")[2] or source
    authority, _, behind = _authority(rest)
    credentials = rest.rpartition("@")[0] if "@" in rest else ""
    words = {rest, behind, behind.partition("?")[0], behind.partition("?")[2]}
    words |= {credentials, authority.rpartition("@")[0]}
    words |= {word.partition(":")[2] for word in list(words)}
    words |= {value for word in list(words) for value in re.split(r"[/?&=#]", word)}
    words |= {unquote(word) for word in words}
    hidden = {word for word in words if len(word) >= SECRET_LENGTH and word not in shown}
    if hidden:
        longest_first = "|".join(re.escape(word) for word in sorted(hidden, key=len, reverse=True))
        text = re.sub(rf"(?<!\w)(?:{longest_first})(?!\w)", "…", text)
    return text


def parse_source(source: str) -> DeclaredSource:
    """Parse a camera's `source`; SourceError where it is none.

    An empty source and `push:` mean that the camera's frames are pushed; a plain path means a file.
    """
    if source in {"", "push", "push:", "push://"}:
        return DeclaredSource("push", "")
    try:
        parts = urlsplit(source)
        port = parts.port
    except ValueError as error:
        raise SourceError(f'source "{redact(source)}" is not a URL: {_URL_REMEDY}') from error
    kind = _KINDS.get(parts.scheme.lower())
    if kind is None:
        raise SourceError(f'source "{redact(source)}" is not one of {", ".join(SCHEMES)}')
    if kind == "rtp":
        return _rtp(source, parts, port)
    if kind == "push":
        return DeclaredSource("push", "")
    if kind == "file":
        path = source if not parts.scheme else unquote(parts.path)
        if not path or (parts.scheme and parts.netloc not in {"", "localhost"}):
            raise SourceError(f'source "{redact(source)}" names no file of this machine: write file:///path or /path')
        return DeclaredSource("device" if DEVICE.fullmatch(path) else "file", path)
    if not parts.hostname or port == 0:
        raise SourceError(f'source "{redact(source)}" names no host')
    ours, parts = _ours(parts)
    return DeclaredSource(
        kind, urlunsplit(_without_credentials(parts)), unquote(parts.username or ""), unquote(parts.password or ""),
        transport="udp" if "transport=udp" in ours else "tcp", proven=UNPROVEN not in ours,
        snapshots=SNAPSHOTS in ours,
    )  # fmt: skip


def _ours(parts: SplitResult) -> tuple[list[str], SplitResult]:
    """The options in the query that are for us, and `parts` without them: the rest of the query is the camera's."""
    known = _OURS.get(parts.scheme.lower(), ())
    words = parts.query.split("&")
    rest = "&".join(word for word in words if word not in known)
    return [word for word in words if word in known], parts._replace(query=rest)


def _rtp(source: str, parts: SplitResult, port: int | None) -> DeclaredSource:
    """A port of ours that a camera sends to: rtp://:PORT, or rtp://ADDRESS:PORT where ADDRESS is ours or a group."""
    if not port:
        raise SourceError(f'source "{redact(source)}" names no port: write rtp://:5004')
    address = parts.hostname or ""
    options: dict[str, int] = {}
    interface = ""
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "interface":
            interface = value
            continue
        least, most = _RTP_OPTIONS.get(name, (0, -1))
        if name not in _RTP_OPTIONS:
            # Which one is not said: behind a ? may be the end of a password.
            known = ", ".join(_RTP_OPTIONS)
            raise SourceError(f'source "{redact(source)}": it has an option that is not one of {known}, interface')
        if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
            raise SourceError(f'source "{redact(source)}": {name} is not between {least} and {most}')
        options[name] = int(value)
    for text, said in ((address, f'"{address}"'), (interface, "interface")):
        try:
            ipaddress.ip_address(text or "::")
        except ValueError as error:
            raise SourceError(f'source "{redact(source)}": {said} is no IP address') from error
    return DeclaredSource("rtp", address, port=port, options=options, interface=interface)


def _without_credentials(parts: SplitResult) -> SplitResult:
    return parts._replace(netloc=parts.netloc.rpartition("@")[2])
