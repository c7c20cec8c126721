"""Parse one line of a device into the message that it carries.

A device sends `#serialno:ID!`, `#locid:NAME!`, `#Sensor…:K=V,…!`, `#frame…:HEX!` and `#EEPROM…:HEX!`. A location may
follow the word directly (`#Sensor1234:`) or in a separate field (`#Sensor:1234:`). Bad bytes raise no exception: they
become `Garbage`, so that they can be counted.
"""

import math
import re
from binascii import Error as HexError
from binascii import unhexlify

from embereye.wire.device.messages import (
    BAD_EEPROM,
    BAD_FRAME,
    BAD_NAME,
    BAD_VALUE,
    CUT_OFF,
    EEPROM_WORDS,
    NO_START,
    NO_VALUE,
    PIXEL_WORDS,
    RAM_WORDS,
    UNKNOWN_WORD,
    Eeprom,
    FrameWords,
    Garbage,
    LocationId,
    Message,
    SensorReading,
    SerialNumber,
)

MAX_NAME = 128  # characters of an id or a location
_NUMBER = rb"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
# The form of nearly every line. The general parser takes five times as long.
_REGULAR = re.compile(
    rb"#Sensor:?([0-9A-Za-z_.-]*):ADC1:?=" + _NUMBER + rb",ADC2:?=" + _NUMBER + rb",ADC3:?=" + _NUMBER
    + rb",(?:DIO|MPY30):?=" + _NUMBER
)  # fmt: skip
_VALUE = re.compile(_NUMBER)
_NAME = re.compile(r"[^\x00-\x1f\x7f#!]+")


def parse_line(line: bytes, messages: list[Message]) -> None:
    """Append the messages in `line` (without its `!`). If the next line cut it off, only the cut line is lost."""
    line = line.strip()
    start = line.rfind(b"#")
    if start < 0:
        messages.append(Garbage(NO_START, len(line)))
        return
    if start:
        messages.append(Garbage(CUT_OFF, len(line[:start].rstrip())))
        line = line[start:]
    message = (None if line.startswith(b"#frame") else _regular_reading(line)) or _message(line)
    messages.append(Garbage(message, len(line)) if isinstance(message, str) else message)


def _regular_reading(line: bytes) -> SensorReading | None:
    match = _REGULAR.fullmatch(line)
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
        name = parse_name(line[9:])
        return SerialNumber(name) if name and line[9:10] == b":" else BAD_NAME
    if word.startswith(b"#locid"):
        name = parse_name(line[6:])
        return LocationId(name) if name and line[6:7] == b":" else BAD_NAME
    return UNKNOWN_WORD


def parse_name(field: bytes) -> str | None:
    """The name in `field` without surrounding colons and blanks; "" if it is empty, None if it is not a valid name."""
    try:
        name = field.decode().strip(": \t\r\n")
    except UnicodeDecodeError:
        return None
    if name and (len(name) > MAX_NAME or not _NAME.fullmatch(name)):
        return None
    return name


def _reading(text: bytes) -> SensorReading | str:
    """Parse what follows `#Sensor`: [location] ":" [location ":"] key [":"] "=" value {"," key [":"] "=" value}."""
    equals = text.find(b"=")
    if equals < 0:
        return NO_VALUE
    location, colon, _ = text[:equals].rstrip(b": ").rpartition(b":")
    if not colon:
        return BAD_VALUE
    name = parse_name(location)
    if name is None:
        return BAD_NAME
    values: dict[bytes, float] = {}
    for field in text[len(location) + 1 :].split(b","):
        key, equals_sign, value = field.partition(b"=")
        key = key.strip(b" :\t\r\n").upper()
        if key not in {b"ADC1", b"ADC2", b"ADC3", b"DIO", b"MPY30"}:
            continue  # other firmware may send more keys
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
    name = parse_name(line[start:colon]) if colon >= start else None
    if name is None:
        return BAD_NAME if colon >= start else BAD_FRAME
    words = _words(line, colon + 1, (PIXEL_WORDS, RAM_WORDS))
    return FrameWords(name or None, words) if words else BAD_FRAME


def _eeprom(line: bytes, start: int) -> Eeprom | str:
    colon = line.rfind(b":")
    name = parse_name(line[start:colon]) if colon >= start else None
    if name is None:
        return BAD_NAME if colon >= start else BAD_EEPROM
    words = _words(line, colon + 1, (EEPROM_WORDS, EEPROM_WORDS + 2))
    return Eeprom(name or None, words[: EEPROM_WORDS * 2]) if words else BAD_EEPROM


def _words(line: bytes, start: int, counts: tuple[int, int]) -> bytes:
    """The hexadecimal words from `start` on, packed or separated by blanks, as bytes; b"" if they are malformed."""
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
    """The digits of words separated by exactly one blank; b"" if they are not. Faster than splitting."""
    text = text.rstrip()
    if len(text) not in {count * 5 - 1 for count in counts} or text.count(b" ") != len(text) // 5:
        return b""
    return text.replace(b" ", b"") if text[4::5] == b" " * (len(text) // 5) else b""
