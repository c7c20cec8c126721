"""Read and write RTSP (RFC 2326): messages, interleaved packets, transports, SDP (RFC 8866).

Everything here is bytes in, values out, for the camera's client and for the simulator's server. `RtspParser` splits
a connection into messages and packets. Nearly always there are only packets, which a short loop returns without a copy.
The other functions read headers and descriptions as cameras write them, and accept their known mistakes.
"""

import base64
import binascii
import contextlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import urlsplit

from embereye.wire.video.nal import split_joined

MAX_HEADERS = 16 * 1024  # bytes of one message's headers
MAX_BODY = 64 * 1024  # bytes; an SDP has one or two thousand
MAX_GARBAGE = 64 * 1024  # bytes skipped while searching for the next message
LOW_CHANNELS = 32  # channels that cameras use; they have a few media with two channels each
PLI, FIR = "PLI", "FIR"
DEFAULT_TIMEOUT = 60.0  # seconds without a sign of life, after which a session ends (RFC 2326, 12.37)
_STATUS = re.compile(r"RTSP/\d\.\d (\d{3})(?: (.*))?$")
_REQUEST = re.compile(r"([A-Z_]{3,20}) (\S+) RTSP/\d\.\d$")
_TWICE = re.compile(r"^rtsps?://(?=rtsps?://)", re.IGNORECASE)
_METHODS = (
    b"OPTIONS", b"DESCRIBE", b"ANNOUNCE", b"SETUP", b"PLAY", b"PLAY_NOTIFY", b"PAUSE", b"RECORD", b"TEARDOWN",
    b"REDIRECT", b"GET_PARAMETER", b"SET_PARAMETER",
)  # fmt: skip
_END = re.compile(rb"\r?\n\r?\n")  # of headers; some cameras end lines by LF alone, which RFC 2326, 4, lets us accept
_LINE_END = re.compile(r"\r?\n")
_BEGINNINGS = (b"RTSP/", b"HTTP/", *(method + b" " for method in _METHODS))  # of messages
_LONGEST = max(map(len, _BEGINNINGS))
_PAYLOAD_TYPES = {str(number): number for number in range(128)}
_DIMENSIONS = re.compile(r"(\d{1,5})[,x-](\d{1,5})$")


class RtspError(ValueError):
    """The peer's bytes are not RTSP, or not acceptable; the text is for people."""


@dataclass(frozen=True)
class Message:
    """A response, or a request from the server (`status` 0)."""

    status: int
    reason: str  # of a request, its method
    headers: Mapping[str, Sequence[str]]  # by lower-case name
    body: bytes = b""
    url: str = ""  # of a request

    def header(self, name: str) -> str:
        """The first header with this (lower-case) name; '' if there is none."""
        return next(iter(self.headers.get(name, ())), "")

    @property
    def sequence(self) -> int:
        """The CSeq; -1 if there is none."""
        text = self.header("cseq").strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


class Interleaved(NamedTuple):
    """One RTP or RTCP packet received over the RTSP connection."""

    channel: int
    data: bytes | memoryview  # in memory that the next bytes may overwrite


def request(method: str, url: str, sequence: int, headers: Mapping[str, str]) -> bytes:
    """Encode one request without a body."""
    lines = [f"{method} {url} RTSP/1.0", f"CSeq: {sequence}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def interleaved(channel: int, data: bytes) -> bytes:
    """Encode `data` as an interleaved packet on `channel`."""
    return b"$" + bytes([channel]) + len(data).to_bytes(2) + data


class RtspParser:
    """Splits a stream of bytes into messages and packets; RtspError if it is not RTSP."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0  # bytes that do not have the end of the headers
        self._garbage = 0
        self._head: Message | None = None  # its body is incomplete
        self._body = 0  # bytes of that body

    def feed(self, data: bytes | memoryview) -> list[Message | Interleaved]:
        """Return what `data` completes. Packets are not copied: they are valid until the memory of `data` is reused."""
        buffer = self._buffer
        items: list[Message | Interleaved] = []
        if self._head is None and not self._searched and not self._garbage:  # nearly always, there are only packets
            data = self._packets(data, items)
        buffer += data
        start, size = 0, len(buffer)
        while start < size:
            if self._head is None and buffer[start] == 0x24 and self._plausible(start):
                end = start + 4 + (int.from_bytes(buffer[start + 2 : start + 4]) if start + 4 <= size else size)
                if end > size:
                    break
                items.append(Interleaved(buffer[start + 1], bytes(buffer[start + 4 : end])))
                self._garbage = 0
            else:
                end = self._message(start, items)
                if end < 0:
                    break
            start = end
        del buffer[:start]
        return items

    def _plausible(self, start: int) -> bool:
        """True if a packet may start at `start`. Behind junk, which may contain a $, only low channels are accepted."""
        return not self._garbage or len(self._buffer) < start + 2 or self._buffer[start + 1] < LOW_CHANNELS

    def _packets(self, data: bytes | memoryview, items: list[Message | Interleaved]) -> memoryview:
        """Add the packets at the start of the buffered bytes and `data` to `items`; return the rest of both."""
        if self._buffer:
            data = b"".join((self._buffer, data))
            self._buffer.clear()
        view, start = memoryview(data), 0
        size = len(view)
        while start + 4 <= size and view[start] == 0x24:
            end = start + 4 + (view[start + 2] << 8 | view[start + 3])
            if end > size:
                break
            items.append(Interleaved(view[start + 1], view[start + 4 : end]))
            self._garbage = 0
            start = end
        return view[start:]

    def _message(self, start: int, items: list[Message | Interleaved]) -> int:
        """Read the message at `start`; return the offset behind it, -1 if it is incomplete."""
        if self._head is not None:
            end = start + self._body
            if end > len(self._buffer):
                return -1
            head, self._head = self._head, None
            items.append(replace(head, body=bytes(self._buffer[start:end])))
            return end
        buffer = self._buffer
        if not _is_message_start(buffer, start):  # some servers send junk between packets
            return self._skip(start, 1)
        blank = _END.search(buffer, start + max(0, self._searched - 3), start + MAX_HEADERS)
        if blank is None:
            if len(buffer) - start >= MAX_HEADERS:
                raise RtspError(f"its headers do not end within {MAX_HEADERS} bytes")
            self._searched = len(buffer) - start
            return -1
        self._searched = 0
        self._garbage = 0
        head = _head(bytes(buffer[start : blank.start()]).decode("utf-8", "replace"))
        self._body = _length(head)
        if self._body:
            self._head = head
        else:
            items.append(head)
        return blank.end()

    def _skip(self, start: int, count: int) -> int:
        self._garbage += count
        self._searched = 0
        if self._garbage > MAX_GARBAGE:
            raise RtspError(f"no RTSP in {MAX_GARBAGE} bytes")
        return start + count


def _is_message_start(buffer: bytearray, start: int) -> bool:
    """True if a message starts at `start`, judging by the bytes received."""
    if not (0x41 <= buffer[start] <= 0x5A):  # an upper-case letter
        return False
    word = bytes(buffer[start : start + _LONGEST])
    return word.startswith(_BEGINNINGS) or any(beginning.startswith(word) for beginning in _BEGINNINGS)


def _head(text: str) -> Message:
    first, *lines = _LINE_END.split(text)
    headers: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if line[:1] in {" ", "\t"} and name:  # the rest of a header's value
            values = headers[name.strip().lower()]
            values[-1] = f"{values[-1]} {line.strip()}".strip()
            continue
        name, colon, value = line.partition(":")
        name = name if colon else ""
        if colon:
            headers.setdefault(name.strip().lower(), []).append(value.strip())
    if match := _STATUS.match(first):
        return Message(int(match[1]), (match[2] or "").strip(), headers)
    if match := _REQUEST.match(first):
        return Message(0, match[1], headers, url=match[2])
    raise RtspError(f'it answers "{printable(first)}", which is not RTSP')


def _length(head: Message) -> int:
    text = head.header("content-length") or "0"
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) > MAX_BODY:
        raise RtspError(f'its Content-Length "{printable(text)}" is not between 0 and {MAX_BODY}')
    return int(text)


def printable(text: str, limit: int = 60) -> str:
    """Shorten `text` and replace control characters, for people."""
    return "".join(character if character.isprintable() else "." for character in text[:limit])


@dataclass(frozen=True)
class Transport:
    """A server's answer to SETUP."""

    channels: tuple[int, int] | None = None  # RTP and RTCP, over the RTSP connection
    server_ports: tuple[int, int] | None = None
    source: str = ""  # address of the packets' sender, if it is another one


def read_transport(text: str) -> Transport:
    """Read a Transport header."""
    values: dict[str, str] = {}
    for part in text.split(","):
        for item in part.split(";"):
            name, _, value = item.strip().partition("=")
            values.setdefault(name.strip().lower(), value.strip())
    return Transport(_pair(values.get("interleaved"), 255), _pair(values.get("server_port"), 65_535),
                     values.get("source", ""))  # fmt: skip


def _pair(text: str | None, most: int) -> tuple[int, int] | None:
    first, _, second = (text or "").partition("-")
    if not re.fullmatch(r"\d{1,5}", first) or not re.fullmatch(r"\d{0,5}", second):
        return None
    pair = int(first), int(second) if second else int(first) + 1
    return pair if max(pair) <= most else None


def read_session(text: str) -> tuple[str, float]:
    """A Session header's id, and the seconds without a sign of life after which the session ends."""
    name, _, rest = text.partition(";")
    timeout = re.search(r"timeout\s*=\s*(\d{1,6})", rest, re.IGNORECASE)
    return name.strip(), float(timeout[1]) if timeout and int(timeout[1]) else DEFAULT_TIMEOUT


@dataclass(frozen=True)
class Track:
    """One medium stream of a session description."""

    media: str  # "video", "audio", …
    payload_type: int
    encoding: str  # upper case: "JPEG", "H264", …
    control: str  # absolute URL
    size: tuple[int, int] = (0, 0)  # pixels; 0: unknown
    parameters: Mapping[str, str] = field(default_factory=dict)  # of the format, by lower-case name
    key_request: str = ""  # feedback that requests a key frame: PLI (RFC 4585) or FIR (RFC 5104); '': none
    profile: str = "RTP/AVP"

    @property
    def parameter_sets(self) -> list[bytes]:
        """The parameter sets of H.264 or H.265 in the description; malformed base64 is left out."""
        sets: list[bytes] = []
        for name in ("sprop-vps", "sprop-sps", "sprop-pps", "sprop-parameter-sets"):
            for text in filter(None, self.parameters.get(name, "").split(",")):
                with contextlib.suppress(binascii.Error, ValueError):
                    sets += split_joined(base64.b64decode(text + "=" * (-len(text) % 4)))
        return [nal for nal in sets if nal]


@dataclass
class _Section:
    media: str
    formats: list[int]
    profile: str = ""
    attributes: dict[str, list[str]] = field(default_factory=dict)

    def values(self, name: str) -> list[str]:
        return self.attributes.get(name, [])


def read_description(body: bytes, base: str) -> tuple[list[Track], str]:
    """The tracks of an SDP and the URL that controls all of them; `base` is the base of relative URLs."""
    whole = _Section("", [])
    sections: list[_Section] = []
    for line in body.decode("utf-8", "replace").splitlines():
        kind, _, value = line.strip().partition("=")
        if kind == "m":
            media, *words = value.split()[:20] or [""]
            formats = [_PAYLOAD_TYPES[word] for word in words[2:] if word in _PAYLOAD_TYPES]
            sections.append(_Section(media.lower(), formats, "".join(words[1:2]).upper()))
        elif kind == "a":
            name, _, text = value.partition(":")
            (sections[-1] if sections else whole).attributes.setdefault(name.lower(), []).append(text.strip())
    session = resolve(base, next(iter(whole.values("control")), "*"))
    for section in sections:  # some cameras list parameters under another medium, which is wrong
        whole.attributes.setdefault("fmtp", []).extend(section.values("fmtp"))
    others = _parameters(whole)
    tracks = [track for section in sections for track in _tracks(section, session, whole, others)]
    return tracks, session


def _tracks(section: _Section, base: str, whole: _Section, others: Mapping[int, Mapping[str, str]]) -> list[Track]:
    names: dict[int, str] = {}
    for text in section.values("rtpmap"):
        word, _, encoding = text.partition(" ")
        if word in _PAYLOAD_TYPES:
            names[_PAYLOAD_TYPES[word]] = encoding.partition("/")[0].strip().upper()
    formats = section.formats or list(names)  # some cameras list none in the medium's line
    names.setdefault(26, "JPEG")
    control = resolve(base, next(iter(section.values("control")), "*"))
    size = _size(section) or _size(whole) or (0, 0)
    profile = section.profile if section.profile.endswith("AVPF") else "RTP/AVP"
    parameters = _parameters(section)
    feedback = {tuple(text.lower().split(maxsplit=3)[:3]) for text in section.values("rtcp-fb")}
    return [
        Track(section.media, number, names.get(number, ""), control, size,
              parameters.get(number) or others.get(number, {}), _key_request(section.profile, feedback, number),
              profile)
        for number in formats
    ]  # fmt: skip


def _parameters(section: _Section) -> dict[int, dict[str, str]]:
    """The parameters of each format, by the format's number."""
    parameters: dict[int, dict[str, str]] = {}
    for text in section.values("fmtp"):
        word, _, items = text.partition(" ")
        if word not in _PAYLOAD_TYPES:
            continue
        for item in items.split(";"):
            name, _, value = item.partition("=")
            if name.strip():
                parameters.setdefault(_PAYLOAD_TYPES[word], {})[name.strip().lower()] = value.strip()
    return parameters


def _key_request(profile: str, feedback: Collection[tuple[str, ...]], number: int) -> str:
    """The key frame request that a format supports; many cameras support one that their profile does not name."""
    pli, fir = (
        any((payload_type, *kind) in feedback for payload_type in ("*", str(number)))
        for kind in (("nack", "pli"), ("ccm", "fir"))
    )
    if fir and not pli:
        return FIR
    return PLI if pli or profile.endswith("AVPF") else ""


def _size(section: _Section) -> tuple[int, int] | None:
    texts = [*section.values("x-dimensions"), *(text.rpartition(" ")[2] for text in section.values("framesize"))]
    for text in texts:
        if match := _DIMENSIONS.match(text.replace(" ", "")):
            return int(match[1]), int(match[2])
    return None


def base_url(stated: str, requested: str) -> str:
    """The base of a description's relative URLs: the base `stated` by the server, else the `requested` URL.

    Cameras leave out the scheme, or everything before the path, or write the scheme twice.
    """
    if stated.startswith("/"):
        request_parts = urlsplit(requested)
        return f"{request_parts.scheme}://{request_parts.netloc}{stated}"
    stated = _TWICE.sub("", stated)
    try:
        parts = urlsplit(stated)
        whole = parts.scheme in {"rtsp", "rtsps"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    return stated if whole else requested


def resolve(base: str, control: str) -> str:
    """The URL of a control attribute: appended to `base`, as all servers intend, not resolved as in RFC 3986."""
    if control in {"", "*"}:
        return base
    if re.match(r"rtsps?://", control, re.IGNORECASE):
        return control
    return f"{base}{'' if base.endswith('/') or control[0] in '/?' else '/'}{control}"
