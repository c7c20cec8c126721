"""Parsing of a camera's declared source, before anything is opened.

`parse_source` finds the kind by the scheme, separates credentials and our options from the address, and raises a
SourceError that says what to write instead. Cameras have passwords in paths and queries too. `redact` therefore shows
only scheme, host and port of a URL, and `conceal` removes its other parts from a text that a camera may have echoed.
Pure.
"""

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
UNVERIFIED = "tls=unverified"
SNAPSHOTS = "snapshots=only"
DEVICE = re.compile(r"/dev/video\d{1,3}")  # Video4Linux's names
_TRANSPORTS = ("transport=tcp", "transport=udp")
_OURS = {
    "rtsp": _TRANSPORTS,
    "rtsps": (*_TRANSPORTS, UNVERIFIED),
    "https": (UNVERIFIED,),
    "onvif": (UNVERIFIED, SNAPSHOTS),
}
SECRET_LENGTH = 3  # characters; a shorter path segment is a channel's number and occurs in every text
_URL_REMEDY = "Write rtsp://HOST:PORT/PATH, with / ? # @ in a password as %2F %3F %23 %40"
_HOST = re.compile(r"([\w.-]{0,260}|\[[0-9A-Fa-f:.%\w]{2,60}\])(?::\d{1,5})?")
_RTP_OPTIONS = {"width": (1, MAX_SIDE), "height": (1, MAX_SIDE), "payload": (0, 127)}


class SourceError(ValueError):
    """A source that cannot be opened as declared. The text is for people and contains no password."""


class RefusedCredentialsError(SourceError):
    """The camera refused the user name or password. Trying again soon could lock the user out."""


@dataclass(frozen=True)
class DeclaredSource:
    """A parsed source. `address` contains no credentials."""

    kind: str  # "http", "rtsp", "rtp", "onvif", "file", "device" or "push"
    address: str  # URL or path; for "rtp" the address to listen at, empty: any
    user: str = ""
    password: str = ""
    port: int = 0  # for "rtp"
    options: Mapping[str, int] = field(default_factory=dict)  # for "rtp": width, height and payload, if given
    transport: str = "tcp"  # for "rtsp": "tcp" or "udp", tried first
    verified: bool = True  # for rtsps, https and onvif: require a trusted certificate
    snapshots: bool = False  # for "onvif": do not play its streams
    interface: str = ""  # for "rtp": address of the network interface that joins a multicast group


def redact(source: str) -> str:
    """Shorten `source` for people and logs: a URL to scheme, host and port, a file to its path.

    Cameras have credentials in the path ("/user=admin_password=x_channel=1") as well as in the query.
    """
    scheme, mark, rest = source.partition("://")
    if not mark:
        if source.startswith(("/", "./", "../")) or not re.search(r"[@=?]", source):
            return source
        return f"{re.split(r'[/?#@=:]', source, maxsplit=1)[0][:20]}…"  # perhaps an address without its scheme
    authority, slash, behind = _authority(rest)
    if scheme.lower() == "file" and not authority and slash == "/":
        return source
    place = authority.rpartition("@")[2]
    # A later "@" may belong to the path, or to a password with a slash. Then `place` is a part of the password.
    if "@" in behind or _HOST.fullmatch(place) is None:
        return f"{scheme[:20]}://…"
    return f"{scheme[:20]}://{place}"


def _authority(rest: str) -> tuple[str, str, str]:
    """Split `rest` at the first of / ? # and backslash: the part before it, the character, the part after it."""
    mark = re.search(r"[/?#\\]", rest)
    return (rest[: mark.start()], mark[0], rest[mark.end() :]) if mark else (rest, "", "")


def conceal(text: str, source: str) -> str:
    """Remove from `text` the parts of the URL `source` that `redact` hides, because a camera may echo them."""
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


def _unescaped_in_password(source: str) -> str:
    """Return the characters @ / # ? that a password in `source` contains, each once; empty if there are none.

    A path may contain an @ too. The address then has a complete host in front of it: an IP address, a name with a dot,
    or a port.
    """
    rest = source.partition("://")[2]
    credentials, _, place = rest.rpartition("@")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if ":" not in authority:
        return ""
    if re.search(r"(@[^@]*[.\]][^@]*|@[^@]+:\d+|^[^:@]*:\d{1,5})$", authority) or not re.search(r"[.:\]]", place):
        return ""
    password = credentials.partition(":")[2]
    return "".join(dict.fromkeys(character for character in password if character in "@/#?"))


def parse_source(source: str) -> DeclaredSource:
    """Parse a camera's `source`; raise SourceError if it is invalid.

    An empty source and `push:` mean that frames are pushed; a plain path means a file.
    """
    if source in {"", "push", "push:", "push://"}:
        return DeclaredSource("push", "")
    if special := _unescaped_in_password(source):
        codes = " ".join(f"%{ord(character):02X}" for character in special)
        raise SourceError(
            f'source "{redact(source)}": the password contains {" ".join(special)}. '
            f"Write {codes} instead, or use credentialsRef"
        )
    try:
        parts = urlsplit(source)
        port = parts.port
    except ValueError as error:
        raise SourceError(f'source "{redact(source)}": not a URL. {_URL_REMEDY}') from error
    kind = _KINDS.get(parts.scheme.lower())
    if kind is None:
        raise SourceError(f'source "{redact(source)}": unknown scheme. Use {", ".join(SCHEMES[:-1])} or {SCHEMES[-1]}')
    if kind == "rtp":
        return _rtp(source, parts, port)
    if kind == "push":
        return DeclaredSource("push", "")
    if kind == "file":
        path = source if not parts.scheme else unquote(parts.path)
        if not path or (parts.scheme and parts.netloc not in {"", "localhost"}):
            raise SourceError(f'source "{redact(source)}": no file of this machine. Write file:///path or /path')
        return DeclaredSource("device" if DEVICE.fullmatch(path) else "file", path)
    if not parts.hostname or port == 0:
        raise SourceError(f'source "{redact(source)}": the host is missing')
    ours, parts = _ours(parts)
    return DeclaredSource(
        kind, urlunsplit(_without_credentials(parts)), unquote(parts.username or ""), unquote(parts.password or ""),
        transport="udp" if "transport=udp" in ours else "tcp", verified=UNVERIFIED not in ours,
        snapshots=SNAPSHOTS in ours,
    )  # fmt: skip


def _ours(parts: SplitResult) -> tuple[list[str], SplitResult]:
    """Split our options from the query: the options, and `parts` with the camera's part of the query."""
    known = _OURS.get(parts.scheme.lower(), ())
    words = parts.query.split("&")
    rest = "&".join(word for word in words if word not in known)
    return [word for word in words if word in known], parts._replace(query=rest)


def _rtp(source: str, parts: SplitResult, port: int | None) -> DeclaredSource:
    """Parse a port for a camera's packets: rtp://:PORT, or rtp://ADDRESS:PORT for one address or group."""
    if not port:
        raise SourceError(f'source "{redact(source)}": the port is missing. Write rtp://:5004')
    address = parts.hostname or ""
    options: dict[str, int] = {}
    interface = ""
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "interface":
            interface = value
            continue
        least, most = _RTP_OPTIONS.get(name, (0, -1))
        if name not in _RTP_OPTIONS:
            # Do not quote the option: the text after a ? may be the end of a password.
            known = ", ".join(_RTP_OPTIONS)
            raise SourceError(f'source "{redact(source)}": unknown option. Use {known} or interface')
        if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
            raise SourceError(f'source "{redact(source)}": {name} has to be between {least} and {most}')
        options[name] = int(value)
    for text, label in ((address, f'"{address}"'), (interface, "interface")):
        try:
            ipaddress.ip_address(text or "::")
        except ValueError as error:
            raise SourceError(f'source "{redact(source)}": {label} is not an IP address') from error
    return DeclaredSource("rtp", address, port=port, options=options, interface=interface)


def _without_credentials(parts: SplitResult) -> SplitResult:
    return parts._replace(netloc=parts.netloc.rpartition("@")[2])
