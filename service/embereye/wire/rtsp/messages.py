"""RTSP (RFC 2326) as a client of cameras needs it: messages, interleaved packets, transports, SDP (RFC 8866)."""

import base64
import binascii
import contextlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import urlsplit

from embereye.wire.video.nal import taken_apart

MAX_HEADERS = 16 * 1024  # bytes of one message's headers
MAX_BODY = 64 * 1024  # bytes; an SDP has one or two thousand
MAX_GARBAGE = 64 * 1024  # bytes skipped in search of the next message
LOW_CHANNELS = 32  # that cameras use; they have a few media, and two channels for each
PLI, FIR = "PLI", "FIR"
DEFAULT_TIMEOUT = 60.0  # seconds that a session lives without a sign of life (RFC 2326, 12.37)
_STATUS = re.compile(r"RTSP/\d\.\d (\d{3})(?: (.*))?$")
_REQUEST = re.compile(r"([A-Z_]{3,20}) (\S+) RTSP/\d\.\d$")
_TWICE = re.compile(r"^rtsps?://(?=rtsps?://)", re.IGNORECASE)
_METHODS = (
    b"OPTIONS", b"DESCRIBE", b"ANNOUNCE", b"SETUP", b"PLAY", b"PLAY_NOTIFY", b"PAUSE", b"RECORD", b"TEARDOWN",
    b"REDIRECT", b"GET_PARAMETER", b"SET_PARAMETER",
)  # fmt: skip
_BEGINNINGS = (b"RTSP/", b"HTTP/", *(method + b" " for method in _METHODS))  # of messages
_LONGEST = max(map(len, _BEGINNINGS))
_PAYLOAD_TYPES = {str(number): number for number in range(128)}
_DIMENSIONS = re.compile(r"(\d{1,5})[,x-](\d{1,5})$")


class RtspError(ValueError):
    """What the other side sends is no RTSP; the text is for people."""


@dataclass(frozen=True)
class Message:
    """One response, or a request of the server's (`status` 0)."""

    status: int
    reason: str  # of a request: its method
    headers: Mapping[str, Sequence[str]]  # by lower-case name
    body: bytes = b""
    url: str = ""  # of a request

    def header(self, name: str) -> str:
        """The first header of this (lower-case) name, or ''."""
        return next(iter(self.headers.get(name, ())), "")

    @property
    def sequence(self) -> int:
        """CSeq, -1 where it has none."""
        text = self.header("cseq").strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


class Interleaved(NamedTuple):
    """One RTP or RTCP packet that came over the connection."""

    channel: int
    data: bytes | memoryview  # of memory that the next bytes may take


def request(method: str, url: str, sequence: int, headers: Mapping[str, str]) -> bytes:
    """The bytes of one request without a body."""
    lines = [f"{method} {url} RTSP/1.0", f"CSeq: {sequence}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def interleaved(channel: int, data: bytes) -> bytes:
    """The bytes of `data` on `channel`."""
    return b"$" + bytes([channel]) + len(data).to_bytes(2) + data


class RtspParser:
    """Accepts bytes as they come, returns messages and packets; RtspError where they make no sense."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0  # bytes in which headers are known not to end
        self._garbage = 0
        self._head: Message | None = None  # whose body is still on its way
        self._body = 0  # bytes of it

    def feed(self, data: bytes | memoryview) -> list[Message | Interleaved]:
        """What `data` completes. Packets are left where they lie: they are good until its memory is used again."""
        buffer = self._buffer
        found: list[Message | Interleaved] = []
        if self._head is None and not self._searched and not self._garbage:  # nearly always there are packets alone
            data = self._packets(data, found)
        buffer += data
        start, size = 0, len(buffer)
        while start < size:
            if self._head is None and buffer[start] == 0x24 and self._plausible(start):
                end = start + 4 + (int.from_bytes(buffer[start + 2 : start + 4]) if start + 4 <= size else size)
                if end > size:
                    break
                found.append(Interleaved(buffer[start + 1], bytes(buffer[start + 4 : end])))
                self._garbage = 0
            else:
                end = self._message(start, found)
                if end < 0:
                    break
            start = end
        del buffer[:start]
        return found

    def _plausible(self, start: int) -> bool:
        """Whether a packet begins at `start`: behind junk, of which a byte may look like it, on a low channel alone."""
        return not self._garbage or len(self._buffer) < start + 2 or self._buffer[start + 1] < LOW_CHANNELS

    def _packets(self, data: bytes | memoryview, found: list[Message | Interleaved]) -> memoryview:
        """Add the packets that `data` begins with, behind what is buffered; returns what is left of both."""
        if self._buffer:
            data = b"".join((self._buffer, data))
            self._buffer.clear()
        view, start = memoryview(data), 0
        size = len(view)
        while start + 4 <= size and view[start] == 0x24:
            end = start + 4 + (view[start + 2] << 8 | view[start + 3])
            if end > size:
                break
            found.append(Interleaved(view[start + 1], view[start + 4 : end]))
            self._garbage = 0
            start = end
        return view[start:]

    def _message(self, start: int, found: list[Message | Interleaved]) -> int:
        """Where what begins at `start` ends, -1: not yet."""
        if self._head is not None:
            end = start + self._body
            if end > len(self._buffer):
                return -1
            head, self._head = self._head, None
            found.append(replace(head, body=bytes(self._buffer[start:end])))
            return end
        buffer = self._buffer
        if not _begins(buffer, start):  # some servers send junk between packets
            return self._skip(start, 1)
        end = buffer.find(b"\r\n\r\n", start + max(0, self._searched - 3), start + MAX_HEADERS)
        if end < 0:
            if len(buffer) - start >= MAX_HEADERS:
                raise RtspError(f"its headers do not end within {MAX_HEADERS} bytes")
            self._searched = len(buffer) - start
            return -1
        self._searched = 0
        self._garbage = 0
        head = _head(bytes(buffer[start:end]).decode("utf-8", "replace"))
        self._body = _length(head)
        if self._body:
            self._head = head
        else:
            found.append(head)
        return end + 4

    def _skip(self, start: int, count: int) -> int:
        self._garbage += count
        self._searched = 0
        if self._garbage > MAX_GARBAGE:
            raise RtspError(f"no RTSP in {MAX_GARBAGE} bytes")
        return start + count


def _begins(buffer: bytearray, start: int) -> bool:
    """Whether a message begins at `start`, as far as can be told."""
    if not (0x41 <= buffer[start] <= 0x5A):  # an upper-case letter
        return False
    word = bytes(buffer[start : start + _LONGEST])
    return word.startswith(_BEGINNINGS) or any(beginning.startswith(word) for beginning in _BEGINNINGS)


def _head(text: str) -> Message:
    first, *lines = text.split("\r\n")
    headers: dict[str, list[str]] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers.setdefault(name.strip().lower(), []).append(value.strip())
    if found := _STATUS.match(first):
        return Message(int(found[1]), (found[2] or "").strip(), headers)
    if found := _REQUEST.match(first):
        return Message(0, found[1], headers, url=found[2])
    raise RtspError(f'it answers "{printable(first)}", which is no RTSP')


def _length(head: Message) -> int:
    text = head.header("content-length") or "0"
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) > MAX_BODY:
        raise RtspError(f'its Content-Length "{printable(text)}" is not between 0 and {MAX_BODY}')
    return int(text)


def printable(text: str, limit: int = 60) -> str:
    """`text` for people: short, without control characters."""
    return "".join(character if character.isprintable() else "." for character in text[:limit])


@dataclass(frozen=True)
class Transport:
    """What a server answers to SETUP."""

    channels: tuple[int, int] | None = None  # RTP and RTCP, over the connection
    server_ports: tuple[int, int] | None = None
    source: str = ""  # address that packets come from, where it is another one


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
    """A Session header's id, and the seconds that the session lives without a sign of life."""
    name, _, rest = text.partition(";")
    found = re.search(r"timeout\s*=\s*(\d{1,6})", rest, re.IGNORECASE)
    return name.strip(), float(found[1]) if found and int(found[1]) else DEFAULT_TIMEOUT


@dataclass(frozen=True)
class Track:
    """One medium of a session description."""

    media: str  # "video", "audio", …
    payload_type: int
    encoding: str  # upper case: "JPEG", "H264", …
    control: str  # absolute URL
    size: tuple[int, int] = (0, 0)  # pixels; 0: not said
    parameters: Mapping[str, str] = field(default_factory=dict)  # of the format, by lower-case name
    key_request: str = ""  # how receivers may ask for a key frame: PLI (RFC 4585) or FIR (RFC 5104); '': they may not
    profile: str = "RTP/AVP"

    @property
    def parameter_sets(self) -> list[bytes]:
        """The parameter sets of H.264 or H.265 that it names; those that are no base64 are left out."""
        found: list[bytes] = []
        for name in ("sprop-vps", "sprop-sps", "sprop-pps", "sprop-parameter-sets"):
            for text in filter(None, self.parameters.get(name, "").split(",")):
                with contextlib.suppress(binascii.Error, ValueError):
                    found += taken_apart(base64.b64decode(text + "=" * (-len(text) % 4)))
        return [nal for nal in found if nal]


@dataclass
class _Section:
    media: str
    formats: list[int]
    profile: str = ""
    attributes: dict[str, list[str]] = field(default_factory=dict)

    def values(self, name: str) -> list[str]:
        return self.attributes.get(name, [])


def read_description(body: bytes, base: str) -> tuple[list[Track], str]:
    """The tracks of an SDP and the URL that controls all of them; `base` is what relative URLs begin with."""
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
    for section in sections:  # parameters that stand with another medium, which is wrong
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
    formats = section.formats or list(names)  # some cameras name none in the medium's line
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
    """The parameters of each format, by its number."""
    found: dict[int, dict[str, str]] = {}
    for text in section.values("fmtp"):
        word, _, items = text.partition(" ")
        if word not in _PAYLOAD_TYPES:
            continue
        for item in items.split(";"):
            name, _, value = item.partition("=")
            if name.strip():
                found.setdefault(_PAYLOAD_TYPES[word], {})[name.strip().lower()] = value.strip()
    return found


def _key_request(profile: str, feedback: Collection[tuple[str, ...]], number: int) -> str:
    """Which requests for a key frame it takes; many cameras take some although their profile does not say so."""
    pli, fir = (any((of, *what) in feedback for of in ("*", str(number))) for what in (("nack", "pli"), ("ccm", "fir")))
    if fir and not pli:
        return FIR
    return PLI if pli or profile.endswith("AVPF") else ""


def _size(section: _Section) -> tuple[int, int] | None:
    texts = [*section.values("x-dimensions"), *(text.rpartition(" ")[2] for text in section.values("framesize"))]
    for text in texts:
        if found := _DIMENSIONS.match(text.replace(" ", "")):
            return int(found[1]), int(found[2])
    return None


def base_of(said: str, asked: str) -> str:
    """What relative URLs of a description begin with: the base that a server has `said`, else the URL that was `asked`.

    Cameras leave out the scheme, or all that stands before the path, or write the scheme twice.
    """
    if said.startswith("/"):
        own = urlsplit(asked)
        return f"{own.scheme}://{own.netloc}{said}"
    said = _TWICE.sub("", said)
    try:
        parts = urlsplit(said)
        whole = parts.scheme in {"rtsp", "rtsps"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    return said if whole else asked


def resolve(base: str, control: str) -> str:
    """The URL of a control attribute: appended to `base` as all servers mean it, not resolved as RFC 3986 has it."""
    if control in {"", "*"}:
        return base
    if re.match(r"rtsps?://", control, re.IGNORECASE):
        return control
    return f"{base}{'' if base.endswith('/') or control[0] in '/?' else '/'}{control}"
