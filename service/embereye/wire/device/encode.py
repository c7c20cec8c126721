"""Encode messages as the lines that a device sends; for simulators and relays."""

import math
from binascii import hexlify

from embereye.units import counted
from embereye.wire.device.lines import parse_name
from embereye.wire.device.messages import (
    EEPROM_WORDS,
    PIXEL_WORDS,
    RAM_WORDS,
    Eeprom,
    FrameWords,
    Garbage,
    LocationId,
    Message,
    SensorReading,
    SerialNumber,
)


def encode(message: Message, *, spaced: bool = False) -> bytes:
    """The line that a device sends for `message`; `spaced` puts blanks between the words of a frame.

    ValueError if no line can carry it: a name with delimiters in it, a frame of a wrong length, `Garbage`.
    """
    match message:
        case SerialNumber(name):
            text = b"#serialno:" + _checked_name(name)
        case LocationId(name):
            text = b"#locid:" + _checked_name(name)
        case SensorReading(location):
            fields = [(b"ADC1", message.smoke_adc), (b"ADC2", message.flame_adc), (b"ADC3", message.gas_adc)]
            values = [key + b"=" + _number(value) for key, value in fields if value is not None]
            if message.flame_detected is not None:
                values.append(b"DIO=%d" % message.flame_detected)
            if not values:
                raise ValueError("a reading without values. Set at least one.")
            text = b"#Sensor" + _checked_name(location) + b":" + b",".join(values)
        case FrameWords(location, words):
            if len(words) not in {PIXEL_WORDS * 2, RAM_WORDS * 2}:
                raise ValueError(
                    f"a frame of {counted(len(words), 'byte')} does not have {PIXEL_WORDS} or {RAM_WORDS} words"
                )
            digits = hexlify(words, " ", 2) if spaced else hexlify(words)
            text = b"#frame" + _checked_name(location) + b":" + digits.upper()
        case Eeprom(name, words):
            if len(words) != EEPROM_WORDS * 2:
                raise ValueError(f"an EEPROM of {counted(len(words), 'byte')} does not have {EEPROM_WORDS} words")
            text = b"#EEPROM" + _checked_name(name) + b":" + hexlify(words).upper()
        case Garbage(reason):
            raise ValueError(f"garbage ({reason}) cannot be sent")
    return text + b"!\r\n"


def is_name(text: str) -> bool:
    """True if a line can carry `text` as a device's name."""
    return bool(text) and parse_name(text.encode()) == text and "=" not in text


def _checked_name(name: str | None) -> bytes:
    if name is None:
        return b""
    if not is_name(name):
        raise ValueError(f"{name!r} cannot be a name in a device's line")
    return name.encode()


def _number(value: float) -> bytes:
    if not math.isfinite(value):
        raise ValueError(f"{value} cannot be sent as a reading")
    return str(int(value) if value == int(value) else value).encode()
