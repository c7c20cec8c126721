"""The text protocol of sensor devices: lines that end in `!` to messages and back, and the bare words sent to them.

A device sends `#serialno:ID!`, `#locid:NAME!`, `#Sensor…:K=V,…!`, `#frame…:HEX!` and `#EEPROM…:HEX!`; a location may
follow the word directly (`#Sensor1234:`) or as a field of its own (`#Sensor:1234:`). Nothing here raises on bad bytes:
what is no message becomes `Garbage`, so that it can be counted.
"""

import math
import re
from binascii import Error as HexError
from binascii import hexlify, unhexlify
from collections.abc import Iterable
from dataclasses import dataclass

MAX_LINE = 16 * 1024  # bytes; the longest real line, 834 spaced words, has about 4,200
MAX_NAME = 128  # characters
PIXEL_WORDS = 768
RAM_WORDS = 834  # pixels, 64 auxiliary words, 2 more
EEPROM_WORDS = 832

_PASSED_ON = re.compile(rb"#passedon:(only|also)(?::([0-9]{1,19}))?")

# What a server says to a device, without any terminator.
START = "PERIOD_ON"  # send readings and frames continuously
CALIBRATION = "EEPROM1"  # send the EEPROM
REQUEST = "REQUEST1"  # send one frame now


@dataclass(frozen=True, slots=True)
class SerialNumber:
    """Who is on this connection."""

    id: str


@dataclass(frozen=True, slots=True)
class LocationId:
    """Where the device on this connection hangs."""

    name: str


@dataclass(frozen=True, slots=True)
class SensorReading:
    """One line of readings; None: the device did not say."""

    location: str | None = None
    smoke_adc: float | None = None  # ADC counts
    flame_adc: float | None = None  # ADC counts
    gas_adc: float | None = None  # ADC counts, MQ-135
    flame_detected: bool | None = None  # digital flame output


@dataclass(frozen=True, slots=True)
class FrameWords:
    """One thermal frame, uncalibrated."""

    location: str | None
    words: bytes  # 768 or 834 big-endian 16-bit words


@dataclass(frozen=True, slots=True)
class Eeprom:
    """The calibration of a device's thermal sensor."""

    id: str | None
    words: bytes  # 832 big-endian 16-bit words


@dataclass(frozen=True, slots=True)
class PassedOn:
    """What follows on this connection comes from another shard, which must not get it back."""

    also: bool  # that shard takes it, too
    since_ns: int = 0  # when the device connected there, nanoseconds since the Unix epoch; 0: not said


@dataclass(frozen=True, slots=True)
class Garbage:
    """Bytes that are no message."""

    reason: str  # one of the REASON constants: few enough to be a metric's label
    length: int  # bytes, without the blanks around them and the `!`


Message = SerialNumber | LocationId | SensorReading | FrameWords | Eeprom | PassedOn | Garbage

TOO_LONG = "too long"  # more than MAX_LINE bytes without a `!`
NO_START = "no start"  # no `#` in the line
CUT_OFF = "cut off"  # another line starts before this one ended
UNKNOWN_WORD = "unknown word"
BAD_NAME = "bad name"
BAD_VALUE = "bad value"  # not a finite number
NO_VALUE = "no value"  # a reading without any known key
BAD_FRAME = "bad frame"  # not hexadecimal, or not 768 or 834 words
BAD_EEPROM = "bad eeprom"
REASONS = (TOO_LONG, NO_START, CUT_OFF, UNKNOWN_WORD, BAD_NAME, BAD_VALUE, NO_VALUE, BAD_FRAME, BAD_EEPROM)

_NUMBER = rb"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
# What nearly every line looks like; the general way costs five times as much.
_USUAL = re.compile(
    rb"#Sensor:?([0-9A-Za-z_.-]*):ADC1:?=" + _NUMBER + rb",ADC2:?=" + _NUMBER + rb",ADC3:?=" + _NUMBER
    + rb",(?:DIO|MPY30):?=" + _NUMBER
)  # fmt: skip
_VALUE = re.compile(_NUMBER)
_NAME = re.compile(r"[^\x00-\x1f\x7f#!]+")


class DeviceParser:
    """Bytes of one connection in, messages out; keeps what is left, at most `MAX_LINE` bytes."""

    def __init__(self) -> None:
        self._left = bytearray()
        self._scanned = 0  # bytes of _left known to hold no `!`
        self._skipping = False  # inside a line that was given up as too long

    @property
    def pending(self) -> int:
        """Bytes kept for a line that has not ended yet."""
        return len(self._left)

    @property
    def skipping(self) -> bool:
        """Whether it is inside a line that was given up as too long."""
        return self._skipping

    def take(self) -> bytes:
        """Give up what is kept for a line that has not ended yet: the caller feeds it again, in front of the rest."""
        left = bytes(self._left)
        self._left.clear()
        self._scanned = 0
        return left

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes. However a stream is split, the messages are the same."""
        messages: list[Message] = []
        source: bytes | bytearray = data
        if self._left:
            self._left += data
            source = self._left
        start, scan = 0, self._scanned
        while (end := source.find(b"!", scan)) >= 0:
            if self._skipping:
                self._skipping = False
            elif end - start > MAX_LINE:
                messages.append(Garbage(TOO_LONG, MAX_LINE))
            else:
                parse_line(bytes(source[start:end]), messages)
            start = scan = end + 1
        rest = len(source) - start
        if not self._skipping and rest > MAX_LINE:
            messages.append(Garbage(TOO_LONG, MAX_LINE))
            self._skipping = True
        if self._skipping:
            self._left.clear()
        elif source is self._left:
            del self._left[:start]
        else:
            self._left += data[start:]
        self._scanned = len(self._left)
        return messages


def parse_line(line: bytes, messages: list[Message]) -> None:
    """Append what `line` (without its `!`) says. A line that was cut off by the next one costs only itself."""
    line = line.strip()
    start = line.rfind(b"#")
    if start < 0:
        messages.append(Garbage(NO_START, len(line)))
        return
    if start:
        messages.append(Garbage(CUT_OFF, len(line[:start].rstrip())))
        line = line[start:]
    message = (None if line.startswith(b"#frame") else _usual_reading(line)) or _message(line)
    messages.append(Garbage(message, len(line)) if isinstance(message, str) else message)


def _usual_reading(line: bytes) -> SensorReading | None:
    match = _USUAL.fullmatch(line)
    if match is None or len(match[1]) > MAX_NAME:
        return None
    smoke, flame, gas, detected = float(match[2]), float(match[3]), float(match[4]), float(match[5])
    if not math.isfinite(smoke + flame + gas + detected):
        return None
    return SensorReading(match[1].decode() or None, smoke, flame, gas, detected != 0)


def _message(line: bytes) -> Message | str:
    """The message in `line`, or the reason why there is none."""
    word = line[:9].lower()
    if word.startswith(b"#sensor"):
        return _reading(line[7:])
    if word.startswith(b"#frame"):
        return _frame(line, 6)
    if word.startswith(b"#eeprom"):
        return _eeprom(line, 7)
    if word == b"#serialno":
        name = _name(line[9:])
        return SerialNumber(name) if name and line[9:10] == b":" else BAD_NAME
    if word.startswith(b"#locid"):
        name = _name(line[6:])
        return LocationId(name) if name and line[6:7] == b":" else BAD_NAME
    if passed_on := _PASSED_ON.fullmatch(line):
        return PassedOn(passed_on[1] == b"also", int(passed_on[2] or 0))
    return UNKNOWN_WORD


def _name(field: bytes) -> str | None:
    """The name in `field` without surrounding colons and blanks: "" where there is none, None where it is not one."""
    try:
        name = field.decode().strip(": \t\r\n")
    except UnicodeDecodeError:
        return None
    if name and (len(name) > MAX_NAME or not _NAME.fullmatch(name)):
        return None
    return name


def _reading(text: bytes) -> SensorReading | str:
    """`text` is what follows `#Sensor`: [location] ":" [location ":"] key [":"] "=" value {"," key [":"] "=" value}."""
    equals = text.find(b"=")
    if equals < 0:
        return NO_VALUE
    location, colon, _ = text[:equals].rstrip(b": ").rpartition(b":")
    if not colon:
        return BAD_VALUE
    name = _name(location)
    if name is None:
        return BAD_NAME
    values: dict[bytes, float] = {}
    for field in text[len(location) + 1 :].split(b","):
        key, equals_sign, value = field.partition(b"=")
        key = key.strip(b" :\t\r\n").upper()
        if key not in {b"ADC1", b"ADC2", b"ADC3", b"DIO", b"MPY30"}:
            continue  # other firmware may say more
        number = value.strip()
        if not equals_sign or not _VALUE.fullmatch(number) or not math.isfinite(float(number)):
            return BAD_VALUE
        values[key] = float(number)
    if not values:
        return NO_VALUE
    digital = [values[key] != 0 for key in (b"DIO", b"MPY30") if key in values]
    return SensorReading(
        name or None,
        values.get(b"ADC1"),
        values.get(b"ADC2"),
        values.get(b"ADC3"),
        any(digital) if digital else None,
    )


def _frame(line: bytes, start: int) -> FrameWords | str:
    colon = line.rfind(b":")
    name = _name(line[start:colon]) if colon >= start else None
    if name is None:
        return BAD_NAME if colon >= start else BAD_FRAME
    words = _words(line, colon + 1, (PIXEL_WORDS, RAM_WORDS))
    return FrameWords(name or None, words) if words else BAD_FRAME


def _eeprom(line: bytes, start: int) -> Eeprom | str:
    colon = line.rfind(b":")
    name = _name(line[start:colon]) if colon >= start else None
    if name is None:
        return BAD_NAME if colon >= start else BAD_EEPROM
    words = _words(line, colon + 1, (EEPROM_WORDS, EEPROM_WORDS + 2))
    return Eeprom(name or None, words[: EEPROM_WORDS * 2]) if words else BAD_EEPROM


def _words(line: bytes, start: int, counts: tuple[int, int]) -> bytes:
    """The hexadecimal words from `start` on, packed or separated by blanks, as bytes; b"" where they are not right."""
    digits: bytes | memoryview = memoryview(line)[start:]
    if len(digits) not in {count * 4 for count in counts}:
        digits = _unspaced(line[start:], counts)
    if not digits:
        separate = line[start:].split()
        if len(separate) > 1 and any(len(word) != 4 for word in separate):
            return b""
        digits = b"".join(separate)
        if len(digits) not in {count * 4 for count in counts}:
            return b""
    try:
        return unhexlify(digits)
    except HexError:
        return b""


def _unspaced(text: bytes, counts: tuple[int, int]) -> bytes:
    """The digits of words that are separated by exactly one blank; b"" where they are not (splitting costs more)."""
    text = text.rstrip()
    if len(text) not in {count * 5 - 1 for count in counts} or text.count(b" ") != len(text) // 5:
        return b""
    return text.replace(b" ", b"") if text[4::5] == b" " * (len(text) // 5) else b""


def encode(message: Message, *, spaced: bool = False) -> bytes:
    """The line a device sends for `message`; `spaced` puts blanks between the words of a frame.

    ValueError for what no line can say: a name with a line's own signs in it, a frame of another length, `Garbage`.
    """
    match message:
        case SerialNumber(name):
            text = b"#serialno:" + _checked_name(name)
        case LocationId(name):
            text = b"#locid:" + _checked_name(name)
        case SensorReading(location):
            fields = [(b"ADC1", message.smoke_adc), (b"ADC2", message.flame_adc), (b"ADC3", message.gas_adc)]
            said = [key + b"=" + _number(value) for key, value in fields if value is not None]
            if message.flame_detected is not None:
                said.append(b"DIO=%d" % message.flame_detected)
            if not said:
                raise ValueError("a reading needs at least one value")
            text = b"#Sensor" + _checked_name(location) + b":" + b",".join(said)
        case FrameWords(location, words):
            if len(words) not in {PIXEL_WORDS * 2, RAM_WORDS * 2}:
                raise ValueError(f"a frame of {len(words)} bytes has neither {PIXEL_WORDS} nor {RAM_WORDS} words")
            digits = hexlify(words, " ", 2) if spaced else hexlify(words)
            text = b"#frame" + _checked_name(location) + b":" + digits.upper()
        case Eeprom(name, words):
            if len(words) != EEPROM_WORDS * 2:
                raise ValueError(f"an EEPROM of {len(words)} bytes has not {EEPROM_WORDS} words")
            text = b"#EEPROM" + _checked_name(name) + b":" + hexlify(words).upper()
        case PassedOn(also, since_ns):
            text = b"#passedon:" + (b"also" if also else b"only") + (b":%d" % since_ns if since_ns else b"")
        case Garbage(reason):
            raise ValueError(f"garbage ({reason}) is received, never sent")
    return text + b"!\r\n"


def _checked_name(name: str | None) -> bytes:
    if name is None:
        return b""
    if not name or _name(name.encode()) != name or "=" in name:
        raise ValueError(f"{name!r} cannot be a name in a device's line")
    return name.encode()


def _number(value: float) -> bytes:
    if not math.isfinite(value):
        raise ValueError(f"{value} cannot be sent as a reading")
    return str(int(value) if value == int(value) else value).encode()


class CommandParser:
    """The bare words that a server sends, told apart although nothing separates them; anything else is skipped."""

    def __init__(self, words: Iterable[str] = (START, CALIBRATION, REQUEST)) -> None:
        by_length = sorted((word.encode() for word in words), key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, by_length)) or rb"(?!)")
        self._keep = max(map(len, by_length), default=1) - 1
        self._left = b""

    def feed(self, data: bytes) -> list[str]:
        """The words that `data` completes."""
        text = self._left + data
        end = 0
        found = []
        for match in self._pattern.finditer(text):
            found.append(match[0].decode())
            end = match.end()
        self._left = text[max(end, len(text) - self._keep) :] if self._keep else b""
        return found
