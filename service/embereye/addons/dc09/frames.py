"""Frames of DC-09: messages and answers as bytes, with siadc09.

siadc09 has checksums, encryption and the parsers. This module writes accounts and prefixes as they are declared, with
their leading zeros, and turns every error of the library into FrameError. A frame is at most MAX_FRAME bytes: LF, CRC,
length, body, CR.
"""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from siadc09 import account as accounts
from siadc09 import message as messages
from siadc09.xdata import Data, XData

from embereye.addons.dc09.codes import Code
from embereye.addons.dc09.options import CID, StationOptions
from embereye.process.reason import reason_of
from embereye.units import SECOND

logging.getLogger("siadc09").setLevel(logging.CRITICAL)
for _name in ("message", "siadcs", "xdata"):
    logging.getLogger(f"siadc09.{_name}").setLevel(logging.CRITICAL)  # they log the content of damaged frames
MAX_FRAME = 2_048  # bytes
EARLY_SECONDS, LATE_SECONDS = 20, 40  # a message may be ahead or behind the receiver's clock: DC-09, 5.5.1.9
TEXT_LENGTH = 80
LF, CR = b"\n", b"\r"


class FrameError(Exception):
    """The bytes are no valid frame, or its key is missing; the text says why."""


@dataclass(frozen=True)
class Answer:
    """The answer of a receiver."""

    kind: str  # ACK, NAK, DUH or another token
    sequence: int
    time_ns: int | None  # the receiver's clock; None: not sent
    encrypted: bool


@dataclass(frozen=True)
class Content:
    """The content of an event for a station."""

    code: Code
    restored: bool
    zone: int
    text: str
    occurred_ns: int  # wall clock


class _Message(messages.Message):  # type: ignore[misc]  # the library has no types
    """A message whose receiver number, prefix and account are written as declared, with their leading zeros."""

    def __init__(self, address: str, key: str, config: dict[str, Any]) -> None:
        super().__init__(accounts.Account(key=key or None), config=config)
        self._address = address  # "R1L0#1234"

    def pack_header(self, encrypted: bool = False) -> bytes:
        """Write the header."""
        flag = "*" if encrypted else ""
        return f'"{flag}{self.idtoken}"{self.seq:04d}{self._address}'.encode("ascii")


def event_frame(options: StationOptions, sequence: int, content: Content, key: str, now_ns: int) -> bytes:
    """Make the frame of an event; `now_ns` is the station's time. FrameError if the key cannot be used."""
    if options.format == CID:
        data = f"#{options.account}|{3 if content.restored else 1}{content.code.cid} 00 {content.zone:03d}"
    else:
        letters = content.code.sia_restored if content.restored else content.code.sia
        data = f"#{options.account}|N{letters}{content.zone:03d}"
    more = [XData("H", f"{_time(content.occurred_ns):%H:%M:%S,%m-%d-%Y}"), XData("I", plain(content.text))]
    return _encoded(options, options.format, sequence, data, more if options.extended else [], key, now_ns)


def poll_frame(options: StationOptions, key: str, now_ns: int) -> bytes:
    """Make a supervision message, whose sequence is always 0. FrameError as in `event_frame`."""
    return _encoded(options, "NULL", 0, "", [], key, now_ns)


def _encoded(
    options: StationOptions, token: str, sequence: int, data: str, more: list[Any], key: str, now_ns: int
) -> bytes:
    receiver = f"R{options.receiver_number}" if options.receiver_number else ""
    address = f"{receiver}L{options.prefix}#{options.account}"
    config = {"idtoken": token, "seqno": sequence, "data": Data(content=data.encode("ascii")) if data else None,
              "xdata": more, "timestamp": _time(now_ns), "encrypted": bool(key)}  # fmt: skip
    with _translated():
        frame: bytes = _Message(address, key, config).encode()
        return frame


def answer_frame(kind: str, request: bytes, sequence: int, key: str, now_ns: int) -> bytes:
    """Make the answer `kind` to the frame `request`: ACK, encrypted if there is a `key`; NAK with the time; or DUH."""
    header = request.partition(b"[")[0]
    address = header.rpartition(b'"')[2][4:].decode("ascii", "replace")
    encrypted = kind == "ACK" and bool(key)
    config = {"idtoken": kind, "seqno": 0 if kind == "NAK" else sequence, "data": None, "xdata": [],
              "timestamp": _time(now_ns) if encrypted or kind == "NAK" else None, "encrypted": encrypted}  # fmt: skip
    with _translated():
        frame: bytes = _Message(address, key if encrypted else "", config).encode()
        return frame


def parse_answer(frame: bytes, key: str) -> Answer:
    """Parse a receiver's answer; FrameError."""
    message = parse_message(frame, key)
    stamp = message.timestamp
    time_ns = int(stamp.timestamp()) * SECOND if stamp else None
    return Answer(str(message.idtoken), int(message.seq), time_ns, bool(message.encrypted))


def parse_message(frame: bytes, key: str) -> Any:
    """Parse any frame to a message of siadc09; FrameError."""
    with _translated():
        return messages.parse_frame(frame, bytes.fromhex(key) if key else None)


def account_of(frame: bytes) -> str:
    """The account in the header of a frame, in capitals and as sent; FrameError if there is none."""
    head = frame.partition(b"[")[0]
    _, mark, account = head.rpartition(b"#")
    text = account.decode("ascii", "replace").upper()
    if not mark or not 0 < len(text) <= 16 or set(text) - set("0123456789ABCDEF"):
        raise FrameError("it names no account")
    return text


def plain(text: str) -> str:
    """`text` as the standard allows it in extended data: without brackets, bars and controls, and short."""
    return "".join(sign if sign.isprintable() and sign not in '[]|"' else " " for sign in text)[:TEXT_LENGTH]


def _time(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // SECOND, UTC)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn every error of the library, which has many for damaged frames, into FrameError."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise FrameError(reason_of(error)) from error
